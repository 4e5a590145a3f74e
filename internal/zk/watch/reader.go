package watch

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Reader reads a znode repeatedly. Only one goroutine may use a Reader.
type Reader struct {
	conn  *zk.Conn
	sub   *connection.Subscription
	query Query
	watch *Watch
	doubt <-chan time.Time // receives an element at doubtUntil; nil unless the watch is in doubt
	// doubtUntil is the time at which the znode is read again because the watch is in doubt.
	doubtUntil time.Time
	written    bool // Written was called since the last read
}

// NewReader returns a Reader, and sends no request. sub must not be closed while the Reader is used. The Reader
// needs no Close, because its watch stays in the pool.
func NewReader(conn *zk.Conn, sub *connection.Subscription, path string, what What) *Reader {
	return &Reader{conn: conn, sub: sub, query: Query{Path: path, What: what}}
}

// Read reads the znode and sets a watch, unless there is one. It returns the errors of the function Read. After an
// error of connection.IsUnreadable, with which only the data is missing, Wait waits for a change.
func (r *Reader) Read(ctx context.Context) (Found, error) {
	q, now := r.query, time.Now()
	q.Epoch = r.sub.State().Epoch
	if !r.written {
		q.Woken = r.watch
	}
	r.written = false
	// Set the watch again if a break of the connection has made it doubtful while the Reader waited, or after
	// connection.DoubtDelay.
	inDoubt := r.doubt != nil
	q.Reset = r.query.Epoch != 0 && r.query.Epoch != q.Epoch || inDoubt && !r.doubtUntil.After(now)
	found, err := Read(ctx, r.conn, q)
	r.watch, r.doubt = nil, nil
	if err != nil && found.Watch == nil && !found.Doubt {
		return found, err
	}
	r.watch, r.query.Epoch = found.Watch, q.Epoch
	if found.Doubt {
		if q.Reset || !inDoubt {
			r.doubtUntil = now.Add(connection.DoubtDelay(q.Reset))
		}
		r.doubt = time.After(r.doubtUntil.Sub(now))
	}
	return found, err
}

// Written must be called when the caller writes to the znode. Users whom an event wakes share a read that may have
// been sent before the write. After Written, the next Read of this Reader does not return the answer to such a
// read.
func (r *Reader) Written() { r.written = true }

// Watch returns the watch of the last read, or nil if the last read has failed.
func (r *Reader) Watch() *Watch { return r.watch }

// Epoch returns the epoch of the connection before the last read that has returned a result, or 0 if there is no such
// read.
func (r *Reader) Epoch() uint64 { return r.query.Epoch }

// Wait returns true when there is a reason to read again, and false when other receives an element. The error is
// the cause of the context or connection.ErrConnClosed.
func (r *Reader) Wait(ctx context.Context, other <-chan struct{}) (changed bool, err error) {
	return r.WaitEither(ctx, &neverRead, other)
}

// neverRead is a Reader that has not read, so that it never wakes WaitEither.
var neverRead Reader

// WaitEither waits as Wait does, for r or for second, which must use the same subscription.
func (r *Reader) WaitEither(ctx context.Context, second *Reader, other <-chan struct{}) (changed bool, err error) {
	for {
		select {
		case event := <-r.watch.C():
			return woken(r.watch.Take(event))
		case event := <-second.watch.C():
			return woken(second.watch.Take(event))
		case <-r.doubt:
			return true, nil
		case <-second.doubt:
			return true, nil
		case <-r.sub.Changed():
			// After a break of the connection, read again even if no watch has fired: the client library can miss a
			// change while it sets the watch again.
			switch state := r.sub.State(); {
			case r.watch.Fired():
				return woken(r.watch.Take(zk.Event{}))
			case second.watch.Fired():
				return woken(second.watch.Take(zk.Event{}))
			case state.Closed:
				return false, connection.ErrConnClosed
			case state.Up && (r.isOlder(state) || second.isOlder(state)):
				return true, nil
			}
		case <-other:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// isOlder reports whether r has a watch and the connection has broken since the read that has returned this watch.
func (r *Reader) isOlder(state connection.State) bool {
	return r.watch != nil && r.query.Epoch != state.Epoch
}

func woken(event zk.Event) (bool, error) {
	if errors.Is(event.Err, zk.ErrClosing) {
		return false, connection.ErrConnClosed
	}
	return true, nil
}

// Doubt returns a channel that receives an element when the Reader must read again because its watch is in doubt.
// The channel is nil if the watch is not in doubt.
func (r *Reader) Doubt() <-chan time.Time { return r.doubt }
