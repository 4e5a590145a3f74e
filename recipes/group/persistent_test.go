package group

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const one = dir + "/one"

const empty = "/\n  app container\n    workers container\n"

// TestPersistent_ExistsUntilItIsClosed checks that the znode exists, with its newest data, from Await until Close.
func TestPersistent_ExistsUntilItIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		is := <-p.Status()
		require.True(w, is.Present)
		require.NoError(w, is.Cause)
		require.Equal(w, conn.SessionID(), is.Session)
		_, stat, err := conn.Get(one)
		require.NoError(w, err)
		require.Equal(w, stat.Czxid, is.Token)
		require.Equal(w, is, p.Current())
		require.NoError(w, p.Err())

		require.NoError(w, p.Set(w.Context(), []byte("more")))
		require.Equal(w, "more", dataOf(w, conn, one))
		require.NoError(w, p.Set(w.Context(), []byte("most")))
		require.NoError(w, conn.Delete(one, -1))
		is = <-p.Status()
		if !is.Present {
			require.ErrorIs(w, is.Cause, recipes.ErrDeleted)
			is = <-p.Status()
		}
		require.True(w, is.Present)
		require.Greater(w, is.Token, stat.Czxid)
		require.Equal(w, "most", dataOf(w, conn, one))

		require.NoError(w, p.Close())
		require.NoError(w, p.Close())
		require.ErrorIs(w, p.Err(), recipes.ErrClosed)
		is, ok := <-p.Status()
		require.True(w, ok)
		require.ErrorIs(w, is.Err, recipes.ErrClosed)
		_, ok = <-p.Status()
		require.False(w, ok, "closed once")
		require.ErrorIs(w, p.Await(w.Context()), recipes.ErrClosed)
		require.ErrorIs(w, p.Set(w.Context(), nil), recipes.ErrClosed)
		require.Equal(w, empty, w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}

// The client library sends a request that waits for a connection in the next session, if the current one
// expires. Such a Set must not overwrite the znode of another client.
func TestTrap19_SetWaitsWhileTheSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := zktest.StartEnsemble(t, 3)
		w := &bubble.Test{T: t, Server: c.Leader()}
		conn := bubble.ConnectFrom(w, c, 1, timeout)
		p := openPresentPersistent(w, conn)
		other, err := NewPersistent(w.Connect(), one, []byte("theirs"), sessionTimeoutOption)
		require.NoError(w, err)
		time.Sleep(time.Second)
		session := conn.SessionID()
		w.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(r *zktest.Request) zktest.Verdict {
			require.NoError(w, w.Server.ExpireSession(session))
			time.Sleep(time.Second)
			return zktest.Pass(r)
		})
		c.Server(1).DropConnections(session)
		time.Sleep(500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(w, p.Set(ctx, []byte("mine")), context.DeadlineExceeded)
		require.NoError(w, other.Await(w.Context()))
		require.Equal(w, "theirs", dataOf(w, conn, one))
		require.ErrorIs(w, p.Current().Cause, recipes.ErrTaken)
		require.NoError(w, p.Close())
		require.NoError(w, other.Close())
	})
}

// Two Persistents on one connection have the same session. The second Persistent must not take the znode of
// the first for its own after the reply to its create was lost.
func TestTrap19_ZnodeOfAnotherPersistentOfTheConnection(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		first := openPresentPersistent(w, conn)
		hook := w.Server.Before(zktest.Match{Op: zktest.OpCreate, Path: one, Nth: 1}, zktest.Cut)
		second := openPersistent(w, conn)
		time.Sleep(10 * time.Second)
		require.ErrorIs(w, second.Current().Cause, recipes.ErrTaken)
		hook.Remove()
		require.NoError(w, second.Close())
		require.True(w, first.Current().Present)

		second = openPersistent(w, conn)
		require.NoError(w, first.Close())
		require.NoError(w, second.Await(w.Context()), "after the first is closed")
		require.NoError(w, second.Close())
	})
}

// TestTrap24_25_OneWatchOnTheZnodeOfAnother checks that waiting for the deletion of another znode sets only
// one watch, even when the connection breaks repeatedly (CURATOR-107, kazoo #175).
func TestTrap24_25_OneWatchOnTheZnodeOfAnother(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		other := openPresentPersistent(w, w.Connect())
		conn := w.Connect()
		p := openPersistent(w, conn)
		for range 5 {
			time.Sleep(10 * time.Second)
			w.Server.DropConnections(conn.SessionID())
		}
		time.Sleep(10 * time.Second)
		require.Len(w, w.Server.Watches(one), 2, "of the owner and of the waiting client")
		require.NoError(w, other.Close())
		require.NoError(w, p.Await(w.Context()))
		require.NoError(w, p.Close())
		require.Empty(w, w.Server.Watches())
	})
}

// TestTrap28_ReplacedWhileDisconnected checks that a Persistent does not take the znode of another client for
// its own, when that client has replaced the znode while the Persistent was disconnected, with the same
// version (CURATOR-391).
func TestTrap28_ReplacedWhileDisconnected(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.Server.DropConnections(conn.SessionID())
		require.NoError(w, operator.Delete(one, -1))
		_, err := operator.Create(one, []byte("data"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		time.Sleep(10 * time.Second)
		require.ErrorIs(w, p.Current().Cause, recipes.ErrTaken)
		require.Equal(w, operator.SessionID(), p.Current().Session)
		require.NoError(w, operator.Delete(one, -1))
		require.NoError(w, p.Await(w.Context()))
		require.NoError(w, p.Close())
	})
}

// TestTrap36_ParentIsDeleted checks that the parent, which was deleted before the create, is created again
// (CURATOR-724).
func TestTrap36_ParentIsDeleted(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		w.Server.Before(zktest.Match{Op: zktest.OpCreate, Path: one, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, operator.Delete(dir, -1))
			return zktest.Pass(q)
		})
		require.NoError(w, operator.Delete(one, -1))
		time.Sleep(time.Second)
		require.True(w, p.Current().Present)
		require.NoError(w, p.Close())
		require.Equal(w, empty, w.Server.Tree())
	})
}

// TestTrap30_StatusIsNotRead checks that a user that does not read the status does not block the Persistent,
// and receives the newest state later.
func TestTrap30_StatusIsNotRead(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		for range 10 {
			require.NoError(w, operator.Delete(one, -1))
			time.Sleep(3 * time.Second)
			require.True(w, p.Current().Present)
		}
		require.Equal(w, p.Current(), <-p.Status())
		require.NoError(w, p.Close())
	})
}

// TestSet_RequestOrReplyLost checks that Set writes the data when its request or reply is lost, and when
// another client has written the znode.
func TestSet_RequestOrReplyLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		token := p.Current().Token
		for i, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			hook(zktest.Match{Op: zktest.OpSetData, Path: one, Nth: 1}, zktest.Cut)
			data := fmt.Sprint("data ", i)
			require.NoError(w, p.Set(w.Context(), []byte(data)))
			require.Equal(w, data, dataOf(w, conn, one))
		}
		require.NoError(w, w.Server.SetVersion(one, 77), "as if another client had written it")
		require.NoError(w, p.Set(w.Context(), []byte("mine")))
		require.Equal(w, "mine", dataOf(w, conn, one))
		require.Equal(w, token, p.Current().Token)
		require.ErrorIs(w, p.Set(w.Context(), make([]byte, 1<<20)), recipes.ErrInvalid)
		require.NoError(w, p.Close())
	})
}

// TestPersistent_ConnectionClosedOrNoPermission checks that the Persistent ends after the connection was
// closed, and without permission.
func TestPersistent_ConnectionClosedOrNoPermission(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		conn.Close()
		<-p.Done()
		require.ErrorIs(w, p.Err(), recipes.ErrConnClosed)
		require.ErrorIs(w, p.Close(), recipes.ErrUnconfirmed)

		conn = w.Connect()
		_, err := conn.Create("/closed", nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		p, err = NewPersistent(conn, "/closed/one", nil, sessionTimeoutOption)
		require.NoError(w, err)
		require.ErrorIs(w, p.Await(w.Context()), recipes.ErrPermission)
		require.NoError(w, p.Close())
		synctest.Wait()
		require.Zero(w, strings.Count(w.Server.Tree(), "one"))
	})
}

// TestPersistent_QuotaExceeded checks that a quota that is exceeded for some time ends the Persistent only
// if it has not created the znode before.
func TestPersistent_QuotaExceeded(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		quota := w.Server.Before(zktest.Match{Op: zktest.OpCreate}, zktest.Fail(zktest.Code(-125)))
		require.NoError(w, w.Server.ExpireSession(conn.SessionID()))
		time.Sleep(time.Minute)
		require.False(w, p.Current().Present)
		require.ErrorIs(w, p.Current().Cause, recipes.ErrPermission)
		other, err := NewPersistent(conn, dir+"/two", nil, sessionTimeoutOption)
		require.NoError(w, err)
		require.ErrorIs(w, other.Await(w.Context()), recipes.ErrPermission)
		<-other.Done()
		quota.Remove()
		require.NoError(w, p.Await(w.Context()))
		require.NoError(w, p.Close())
	})
}
