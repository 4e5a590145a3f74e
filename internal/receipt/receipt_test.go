package receipt

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

var anyone = zk.WorldACL(zk.PermAll)

// play runs f in a bubble, with a connection and the node /n.
func play(t *testing.T, f func(t *testing.T, srv *zktest.Server, conn *zk.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(4*time.Second, zk.WithMaxBufferSize(64<<10))
		require.NoError(t, err)
		_, err = conn.Create("/n", nil, 0, anyone)
		require.NoError(t, err)
		f(t, srv, conn)
	})
}

// set is a transaction whose repetition would show in the version.
func set(ctx context.Context, conn *zk.Conn, version int32) error {
	_, err := Do(ctx, conn, "/n", anyone, &zk.SetDataRequest{Path: "/n", Data: []byte("x"), Version: version})
	return err
}

func version(t *testing.T, conn *zk.Conn) int32 {
	_, stat, err := conn.Get("/n")
	require.NoError(t, err)
	return stat.Version
}

func TestOneReceiptForAll(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		for i := range 5 {
			begin := len(srv.Log())
			require.NoError(t, set(t.Context(), conn, int32(i)))
			require.Len(t, srv.Log()[begin:], 1, "one request")
		}
		children, _, err := conn.Children("/n")
		require.NoError(t, err)
		require.Len(t, children, 1)
		require.True(t, Is(children[0]))
		require.ErrorIs(t, set(t.Context(), conn, 1), zk.ErrBadVersion)
		require.NoError(t, set(t.Context(), conn, 5), "the failure has not changed the receipt")
	})
}

// The reply is lost of the first transaction, which creates the receipt, and of a
// later one.
func TestReplyLost(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		for i := range 2 {
			srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
			require.ErrorIs(t, set(t.Context(), conn, int32(i)), ErrLost)
			require.Equal(t, int32(i+1), version(t, conn))
		}
		require.NoError(t, set(t.Context(), conn, 2))
	})
}

func TestRequestLost(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		for i := range 2 {
			srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
			require.NoError(t, set(t.Context(), conn, int32(i)))
			require.Equal(t, int32(i+1), version(t, conn))
		}
	})
}

// Reply lost, and then the answer to the question for it.
func TestReplyAndReadBackLost(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		srv.After(zktest.Match{Op: zktest.OpGetData, Path: "/n/_r_*", Nth: 1}, zktest.Cut)
		require.ErrorIs(t, set(t.Context(), conn, 0), ErrLost)
		require.Equal(t, int32(1), version(t, conn))
	})
}

// A try that its server reads only after the read-back.
func TestTryThatIsStuck(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		require.NoError(t, set(t.Context(), conn, 0))
		other, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		b := bookOf(conn, "/n")
		ops := []any{&zk.SetDataRequest{Path: "/n", Data: []byte("x"), Version: 1}}
		late := append([]any{&zk.SetDataRequest{Path: b.path, Data: []byte("mine"), Version: 0}}, ops...)
		srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		srv.After(zktest.Match{Op: zktest.OpGetData, Path: b.path, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			go func() {
				_, err := other.Multi(late...)
				require.NoError(t, err)
			}()
			return zktest.Pass(q)
		})
		srv.Delay(zktest.BothWays, time.Millisecond) // so that the late one comes first
		srv.Delay(zktest.BothWays, 0, other.SessionID())
		tx := transaction{book: b, conn: conn, acl: anyone, ops: ops, guid: []byte("mine")}
		_, err = tx.run(t.Context())
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, int32(2), version(t, conn))
		require.NoError(t, set(t.Context(), conn, 2))
	})
}

func TestSessionEnds(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		require.NoError(t, set(t.Context(), conn, 0))
		require.NoError(t, srv.ExpireSession(conn.SessionID()))
		time.Sleep(3 * time.Second) // the client has a new session by then
		require.ErrorIs(t, set(t.Context(), conn, 1), ErrGone, "with the session that made it")
		require.NoError(t, set(t.Context(), conn, 1))
		srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(t, srv.ExpireSession(conn.SessionID()))
			return zktest.Cut(q)
		})
		require.ErrorIs(t, set(t.Context(), conn, 2), ErrUnknown)
		require.Equal(t, int32(3), version(t, conn))
		require.NoError(t, set(t.Context(), conn, 3))
	})
}

// A dir that was deleted and made anew is at version 0 again.
func TestDirIsAnother(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		require.NoError(t, set(t.Context(), conn, 0))
		require.NoError(t, conn.Delete(receiptOf(conn), -1))
		require.NoError(t, conn.Delete("/n", -1))
		for range 2 {
			_, err := conn.Create("/n", nil, 0, anyone)
			require.True(t, err == nil || err == zk.ErrNodeExists)
			_, err = conn.Set("/n", nil, -1)
			require.NoError(t, err)
		}
		require.ErrorIs(t, set(t.Context(), conn, 1), zk.ErrBadVersion)
		require.ErrorIs(t, set(t.Context(), conn, 2), ErrGone)
		require.Equal(t, int32(2), version(t, conn))
		require.NoError(t, set(t.Context(), conn, 2))
	})
}

func receiptOf(conn *zk.Conn) string { return bookOf(conn, "/n").path }

func TestContextEnds(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		srv.Pause()
		err := set(ctx, conn, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrUnknown)
		err = set(ctx, conn, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrUnknown, "nothing was sent")
		srv.Resume()
		synctest.Wait()
		v := version(t, conn)
		require.NoError(t, set(t.Context(), conn, v), "the abandoned one has changed the receipt unseen")
	})
}
