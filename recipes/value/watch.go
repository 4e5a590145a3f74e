package value

import (
	"context"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Change is a state of a value.
type Change[T any] struct {
	// Value is the value, or the zero value if the znode does not exist.
	Value T
	// Version is the version of the value, or the zero Version if the znode does not exist.
	Version Version
	// Cause is [recipes.ErrFormat], [recipes.ErrTooLarge] or [recipes.ErrPermission] if the data
	// cannot be read. Other changes may follow.
	Cause error
	// Err is set only in the last element, and is the reason why the channel was closed:
	// [recipes.ErrConnClosed], or an error with which the servers reject all requests.
	Err error
}

// Watch returns a channel that delivers the current value and each later change. The
// channel is closed, without an Err, after the context is done. A slow reader receives the newest state
// instead of those that it missed, and states may be skipped if changes follow each other
// quickly. All calls over one connection share a watch. The client library cannot remove
// it, so it remains until the next change of the value.
func (v *Value[T]) Watch(ctx context.Context) <-chan Change[T] {
	c := make(chan Change[T], 1)
	sub := v.node.Subscribe()
	w := watcher[T]{value: v, changes: c, reader: watch.NewReader(v.node.Conn, sub, v.node.Path, watch.DataOrCreation)}
	go func() {
		defer close(c)
		defer sub.Close()
		if err := w.deliverChanges(ctx); ctx.Err() == nil {
			limit.SendNewest(c, Change[T]{Err: v.node.Fail("watch", v.node.Path, err)})
		}
	}()
	return c
}

// watcher is the state of one call of Watch. Only the goroutine that Watch starts uses it.
type watcher[T any] struct {
	value     *Value[T]
	changes   chan Change[T]
	reader    *watch.Reader
	delivered bool    // reports that a state was delivered
	last      Version // the version of the last state that was delivered
	readable  bool    // reports that the data of last could be read
}

// deliverChanges delivers states until it fails, and returns the reason.
func (w *watcher[T]) deliverChanges(ctx context.Context) error {
	for {
		session := w.value.node.Conn.SessionID()
		found, err := w.reader.Read(ctx)
		if err != nil && found.Stat == nil { // with a Stat, only the data could not be read, which newChange reports
			return err
		}
		current := state{data: found.Data, err: err, session: session}
		if found.Stat != nil {
			current.Version = versionOf(found.Stat)
		}
		if !w.delivered || current.Version != w.last || w.readable != (err == nil) {
			w.delivered, w.last, w.readable = true, current.Version, err == nil
			limit.SendNewest(w.changes, w.newChange(current))
		}
		if _, err := w.reader.Wait(ctx, nil); err != nil {
			return err
		}
	}
}

// newChange returns the Change for the state s. It contains an error if the data cannot be decoded.
func (w *watcher[T]) newChange(s state) Change[T] {
	w.value.setLatest(s)
	value, err := w.value.decode(s)
	return Change[T]{Value: value, Version: s.Version, Cause: w.value.node.Fail("read", w.value.node.Path, err)}
}
