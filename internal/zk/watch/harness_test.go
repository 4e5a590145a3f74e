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

const timeout = bubble.SessionTimeout

// runTest runs f in a bubble with a server, the connection under test, and the connection Operator of another
// program.
func runTest(t *testing.T, f func(w *bubble.Test)) {
	bubble.Run(t, func(w *bubble.Test) {
		w.Conn, w.Operator = w.Connect(), w.Connect()
		f(w)
	})
}

func createZnode(w *bubble.Test, path, data string) {
	_, err := w.Operator.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
}

func set(w *bubble.Test, path, data string) {
	_, err := w.Operator.Set(path, []byte(data), -1)
	require.NoError(w, err)
	synctest.Wait()
}

// drop breaks the connection under test, and waits until the client has reconnected. If lose is set, the client
// library fails to set its watches again.
func drop(w *bubble.Test, lose bool) {
	if lose {
		w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: w.Conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
	}
	w.Server.DropConnections(w.Conn.SessionID())
	time.Sleep(timeout / 2)
	synctest.Wait()
}

// countReads returns the number of read requests that the server has received since the last call of countReads.
func countReads(w *bubble.Test) int {
	n := w.Server.Log().Count(zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists)
	w.Server.ResetLog()
	return n
}

// follower reads a znode, and reads it again after each event, until the test cancels it.
type follower struct {
	w      *bubble.Test
	sub    *connection.Subscription
	cancel context.CancelFunc
	ended  chan struct{}
	seen   []Found
	err    error
}

// follow starts a follower of a znode, and waits for its first read.
func follow(w *bubble.Test, path string, what What) *follower {
	ctx, cancel := context.WithCancel(w.Context())
	u := &follower{w: w, sub: connection.Subscribe(w.Conn, timeout), cancel: cancel, ended: make(chan struct{})}
	r := NewReader(w.Conn, u.sub, path, what)
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

// end cancels the follower and waits until its goroutine has ended.
func (u *follower) end() {
	u.cancel()
	<-u.ended
	synctest.Wait()
}
