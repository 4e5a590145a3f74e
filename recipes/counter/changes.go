package counter

import (
	"context"
	"errors"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	setup "github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Change is a state of a value.
type Change[T any] struct {
	// Value is the value, or the zero value if the znode does not exist.
	Value T
	// Version is the version of the value, or the zero Version if the znode does not exist.
	Version Version
	// Err is [ErrFormat] or [recipes.ErrTooLarge] if the data cannot be read; other changes
	// may follow. Any other error is set in the last element and is the reason why the
	// channel was closed: [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Changes returns a channel that delivers the current value and each later change. The
// channel is closed after the context is done. A slow reader receives the newest state
// instead of those that it missed, and states may be skipped if changes follow each other
// quickly. All calls over one connection share a watch. The client library cannot remove
// it, so it remains until the next change of the value.
func (v *Value[T]) Changes(ctx context.Context) <-chan Change[T] {
	c := make(chan Change[T], 1)
	sub := v.at.Subscribe()
	w := watcher[T]{v: v, c: c, znode: watch.NewReader(v.at.Conn, sub, v.at.Path, watch.DataOrCreation)}
	go func() {
		defer close(c)
		defer sub.Close()
		if err := w.run(ctx); ctx.Err() == nil {
			latest.Send(w.c, Change[T]{Err: setup.Fail("watch", v.at.Path, err)})
		}
	}()
	return c
}

// watcher belongs to the goroutine that Changes starts.
type watcher[T any] struct {
	v     *Value[T]
	c     chan Change[T]
	znode *watch.Reader
	last  Version
	told  bool
}

// run returns what ends the channel.
func (w *watcher[T]) run(ctx context.Context) error {
	for {
		found, err := w.znode.Read(ctx)
		tooLarge := errors.Is(err, zkerror.ErrTooLarge) && found.Stat != nil
		if err != nil && !tooLarge {
			return err
		}
		if tooLarge {
			if version := versionOf(found.Stat); version != w.last {
				w.last, w.told = version, true
				latest.Send(w.c, Change[T]{Version: version, Err: setup.Fail("read", w.v.at.Path, err)})
			}
			if _, err := w.znode.Wait(ctx, nil); err != nil {
				return err
			}
			continue
		}
		seen := snapshot{}
		if found.Stat != nil {
			seen = snapshot{versionOf(found.Stat), found.Data}
		}
		w.tell(seen)
		if _, err := w.znode.Wait(ctx, nil); err != nil {
			return err
		}
	}
}

// tell delivers a state unless it was delivered last.
func (w *watcher[T]) tell(seen snapshot) {
	if seen.Version == w.last && w.told {
		return
	}
	w.last, w.told = seen.Version, true
	w.v.note(seen)
	value, err := w.v.decode(seen)
	latest.Send(w.c, Change[T]{value, seen.Version, err})
}
