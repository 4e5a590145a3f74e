package lock

import (
	"context"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// asked is a call that asks for a lock.
type asked struct {
	w      *world
	conn   *zk.Conn
	cancel context.CancelFunc
	done   chan struct{} // closed when it has returned
	at     time.Time     // when
	hold   *Hold
	err    error
}

// ask calls f on a goroutine of its own.
func (w *world) ask(conn *zk.Conn, f func(context.Context) (*Hold, error)) *asked {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asked{w: w, conn: conn, cancel: cancel, done: make(chan struct{})}
	w.asked = append(w.asked, a)
	go func() {
		defer close(a.done)
		if a.hold, a.err = f(ctx); a.hold != nil {
			w.note(a.hold)
		}
		a.at = time.Now()
	}()
	return a
}

// lock asks for the mutex and lets that find its place.
func (w *world) lock(conn *zk.Conn, options ...recipes.Option) *asked {
	w.Helper()
	a := w.ask(conn, w.mutex(conn, options...).Lock)
	w.pass(0)
	return a
}

// read asks for the lock for reading and lets that find its place.
func (w *world) read(conn *zk.Conn, options ...recipes.Option) *asked {
	w.Helper()
	a := w.ask(conn, w.rw(conn, options...).RLock)
	w.pass(0)
	return a
}

// write asks for the lock for writing and lets that find its place.
func (w *world) write(conn *zk.Conn, options ...recipes.Option) *writer {
	w.Helper()
	x := &writer{}
	x.asked = w.ask(conn, func(ctx context.Context) (*Hold, error) {
		h, err := w.rw(conn, options...).Lock(ctx)
		if err != nil {
			return nil, err
		}
		x.write = h
		return h.Hold, nil
	})
	w.pass(0)
	return x
}

// writer is a call that asks for a lock for writing.
type writer struct {
	*asked
	write *WriteHold
}

// downgrade makes it a lock for reading.
func (x *writer) downgrade() {
	x.w.Helper()
	require.NoError(x.w, x.write.Downgrade(x.w.Context()))
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	for _, g := range x.w.grants {
		if g.Hold == x.hold && g.written.IsZero() {
			g.written = time.Now()
		}
	}
}

// asReader is the path of the znode after a downgrade.
func (x *writer) asReader() string {
	return strings.NewReplacer("__WRIT__", "__READ__", "__lock__", "__rlock__").Replace(x.hold.Path())
}

// holds asserts that the lock was granted and is held.
func (a *asked) holds() *Hold {
	a.w.Helper()
	select {
	case <-a.done:
		require.NoError(a.w, a.err)
		require.NoError(a.w, a.hold.Err())
		return a.hold
	default:
		require.Fail(a.w, "still waits")
		return nil
	}
}

// waits asserts that the lock is still waited for.
func (a *asked) waits() {
	a.w.Helper()
	select {
	case <-a.done:
		require.Fail(a.w, "has returned", "%v", a.err)
	default:
	}
}

// failed asserts that the lock was not granted, and returns why.
func (a *asked) failed() error {
	a.w.Helper()
	select {
	case <-a.done:
		require.Error(a.w, a.err)
		return a.err
	default:
		require.Fail(a.w, "still waits")
		return nil
	}
}

// release releases and asserts that this is confirmed.
func (a *asked) release() {
	a.w.Helper()
	require.NoError(a.w, a.holds().Release(a.w.Context()))
	a.w.pass(0)
}

// alone asserts that the hold has the only znode, of its own session.
func (a *asked) alone() {
	a.w.Helper()
	h := a.holds()
	a.w.line(h.Path())
	stat := a.w.stat(h.Path())
	require.Equal(a.w, a.conn.SessionID(), stat.EphemeralOwner)
	require.Equal(a.w, stat.Czxid, h.Token())
}
