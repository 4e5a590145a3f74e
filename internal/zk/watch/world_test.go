package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second

// world is a server with two connections: the one under test and that of another program.
type world struct {
	*testing.T
	srv         *zktest.Server
	conn, other *zk.Conn
}

func play(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, srv: zktest.Start(t)}
		w.conn, w.other = w.connect(), w.connect()
		f(w)
	})
}

func (w *world) connect() *zk.Conn {
	conn, _, err := w.srv.Connect(timeout)
	require.NoError(w, err)
	synctest.Wait()
	return conn
}

func (w *world) create(path, data string) {
	_, err := w.other.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
}

func (w *world) set(path, data string) {
	_, err := w.other.Set(path, []byte(data), -1)
	require.NoError(w, err)
	synctest.Wait()
}

// drop breaks the connection under test, and waits until it is back. If lose is set,
// the client library fails to set its watches again.
func (w *world) drop(lose bool) {
	if lose {
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: w.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
	}
	w.srv.DropConnections(w.conn.SessionID())
	time.Sleep(timeout / 2)
	synctest.Wait()
}

// reads returns the number of requests that have read since the last call.
func (w *world) reads() int {
	n := w.srv.Log().Count(zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists)
	w.srv.ResetLog()
	return n
}

// user is one user of the package, as all of them are: it reads, and reads again
// whenever there is a reason.
type user struct {
	w      *world
	sub    *session.Subscription
	cancel context.CancelFunc
	ended  chan struct{}
	seen   []Found
	err    error
}

func (w *world) user(path string, what What) *user {
	ctx, cancel := context.WithCancel(w.Context())
	u := &user{w: w, sub: session.Subscribe(w.conn, timeout), cancel: cancel, ended: make(chan struct{})}
	r := NewReader(w.conn, u.sub, path, what)
	go func() {
		defer close(u.ended)
		defer u.sub.Close()
		for u.err == nil {
			var found Found
			if found, u.err = r.Read(ctx); u.err != nil {
				return
			}
			u.seen = append(u.seen, found)
			_, u.err = r.Wait(ctx, nil)
		}
	}()
	synctest.Wait()
	return u
}

func (u *user) last() string {
	require.NotEmpty(u.w, u.seen)
	return string(u.seen[len(u.seen)-1].Data)
}

func (u *user) end() {
	u.cancel()
	<-u.ended
	synctest.Wait()
}
