package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second

// harness is a server with two connections: the one under test and that of another program.
type harness struct {
	*testing.T
	srv         *zktest.Server
	conn, other *zk.Conn
}

func runTest(t *testing.T, f func(w *harness)) {
	synctest.Test(t, func(t *testing.T) {
		w := &harness{T: t, srv: zktest.Start(t)}
		w.conn, w.other = w.connect(), w.connect()
		f(w)
	})
}

func (w *harness) connect() *zk.Conn { return bubble.Connect(w, w.srv, timeout) }

func (w *harness) create(path, data string) {
	_, err := w.other.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
}

func (w *harness) set(path, data string) {
	_, err := w.other.Set(path, []byte(data), -1)
	require.NoError(w, err)
	synctest.Wait()
}

// drop breaks the connection under test, and waits until the client has reconnected. If lose is
// set, the client library fails to set its watches again.
func (w *harness) drop(lose bool) {
	if lose {
		w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: w.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
	}
	w.srv.DropConnections(w.conn.SessionID())
	time.Sleep(timeout / 2)
	synctest.Wait()
}

// reads returns the number of requests that have read since the last call.
func (w *harness) reads() int {
	n := w.srv.Log().Count(zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists)
	w.srv.ResetLog()
	return n
}

// follower reads a znode, and reads it again after each event, until the test cancels it.
type follower struct {
	w      *harness
	sub    *connection.Subscription
	cancel context.CancelFunc
	ended  chan struct{}
	seen   []Found
	err    error
}

func (w *harness) follower(path string, what What) *follower {
	ctx, cancel := context.WithCancel(w.Context())
	u := &follower{w: w, sub: connection.Subscribe(w.conn, timeout), cancel: cancel, ended: make(chan struct{})}
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

func (u *follower) last() string {
	require.NotEmpty(u.w, u.seen)
	return string(u.seen[len(u.seen)-1].Data)
}

func (u *follower) end() {
	u.cancel()
	<-u.ended
	synctest.Wait()
}
