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

const onePath = dir + "/one"

const emptyTree = "/\n  app container\n    workers container\n"

// TestPersistent_ExistsUntilItIsClosed checks that the znode of a Persistent exists, with its newest data, from
// Await until Close.
func TestPersistent_ExistsUntilItIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		is := <-p.Status()
		require.True(w, is.Present)
		require.NoError(w, is.Cause)
		require.Equal(w, conn.SessionID(), is.Session)
		_, stat, err := conn.Get(onePath)
		require.NoError(w, err)
		require.Equal(w, stat.Czxid, is.Token)
		require.Equal(w, is, p.Current())
		require.NoError(w, p.Err())

		require.NoError(w, p.Set(w.Context(), []byte("more")))
		require.Equal(w, "more", dataOf(w, conn, onePath))
		require.NoError(w, p.Set(w.Context(), []byte("most")))
		require.NoError(w, conn.Delete(onePath, -1))
		is = <-p.Status()
		if !is.Present {
			require.ErrorIs(w, is.Cause, recipes.ErrDeleted)
			is = <-p.Status()
		}
		require.True(w, is.Present)
		require.Greater(w, is.Token, stat.Czxid)
		require.Equal(w, "most", dataOf(w, conn, onePath))

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
		require.Equal(w, emptyTree, w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}

// TestSet_DoesNotOverwriteZnodeOfOtherClient checks that a Set that waits for a connection does not overwrite the
// znode of another client. If the session expires, the client library sends the waiting request in the next
// session, in which the znode may belong to the other client.
// Scenario 19 of docs/traps.md.
func TestSet_DoesNotOverwriteZnodeOfOtherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := zktest.StartEnsemble(t, 3)
		w := &bubble.Test{T: t, Server: c.Leader()}
		conn := bubble.ConnectFrom(w, c, 1, timeout)
		p := openPresentPersistent(w, conn)
		other, err := NewPersistent(w.Connect(), onePath, []byte("theirs"), sessionTimeoutOption)
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
		require.Equal(w, "theirs", dataOf(w, conn, onePath))
		require.ErrorIs(w, p.Current().Cause, recipes.ErrTaken)
		require.NoError(w, p.Close())
		require.NoError(w, other.Close())
	})
}

// TestPersistent_LeavesZnodeOfSameConnectionAlone checks that the second of two Persistents on one connection does
// not take the znode of the first for its own after the reply to its create was lost, although both have the same
// session.
// Scenario 19 of docs/traps.md.
func TestPersistent_LeavesZnodeOfSameConnectionAlone(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		first := openPresentPersistent(w, conn)
		hook := w.Server.Before(zktest.Match{Op: zktest.OpCreate, Path: onePath, Nth: 1}, zktest.Cut)
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

// TestPersistent_SetsOneWatchOnZnodeOfOtherClient checks that a Persistent that waits for the deletion of another
// client's znode sets only one watch, even when the connection breaks repeatedly (CURATOR-107, kazoo #175).
// Scenario 24 of docs/traps.md.
// Scenario 25 of docs/traps.md.
func TestPersistent_SetsOneWatchOnZnodeOfOtherClient(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		other := openPresentPersistent(w, w.Connect())
		conn := w.Connect()
		p := openPersistent(w, conn)
		for range 5 {
			time.Sleep(10 * time.Second)
			w.Server.DropConnections(conn.SessionID())
		}
		time.Sleep(10 * time.Second)
		require.Len(w, w.Server.Watches(onePath), 2, "of the owner and of the waiting client")
		require.NoError(w, other.Close())
		require.NoError(w, p.Await(w.Context()))
		require.NoError(w, p.Close())
		require.Empty(w, w.Server.Watches())
	})
}

// TestPersistent_DetectsReplacementWhileDisconnected checks that a Persistent does not take the znode of another
// client for its own, if the other client has replaced the znode, with the same version, while the Persistent was
// disconnected (CURATOR-391).
// Scenario 28 of docs/traps.md.
func TestPersistent_DetectsReplacementWhileDisconnected(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.Server.DropConnections(conn.SessionID())
		require.NoError(w, operator.Delete(onePath, -1))
		_, err := operator.Create(onePath, []byte("data"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		time.Sleep(10 * time.Second)
		require.ErrorIs(w, p.Current().Cause, recipes.ErrTaken)
		require.Equal(w, operator.SessionID(), p.Current().Session)
		require.NoError(w, operator.Delete(onePath, -1))
		require.NoError(w, p.Await(w.Context()))
		require.NoError(w, p.Close())
	})
}

// TestPersistent_RecreatesDeletedParent checks that a Persistent creates the parent again if another client has
// deleted the parent before the create (CURATOR-724).
// Scenario 36 of docs/traps.md.
func TestPersistent_RecreatesDeletedParent(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		w.Server.Before(zktest.Match{Op: zktest.OpCreate, Path: onePath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, operator.Delete(dir, -1))
			return zktest.Pass(q)
		})
		require.NoError(w, operator.Delete(onePath, -1))
		time.Sleep(time.Second)
		require.True(w, p.Current().Present)
		require.NoError(w, p.Close())
		require.Equal(w, emptyTree, w.Server.Tree())
	})
}

// TestPersistent_ContinuesIfStatusIsNotRead checks that a user that does not read the channel of Status does not
// block the Persistent, and receives the newest state later.
// Scenario 30 of docs/traps.md.
func TestPersistent_ContinuesIfStatusIsNotRead(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, operator := w.Connect(), w.Connect()
		p := openPresentPersistent(w, conn)
		for range 10 {
			require.NoError(w, operator.Delete(onePath, -1))
			time.Sleep(3 * time.Second)
			require.True(w, p.Current().Present)
		}
		require.Equal(w, p.Current(), <-p.Status())
		require.NoError(w, p.Close())
	})
}

// TestSet_SucceedsIfRequestOrReplyIsLost checks that Set writes the data if its request or reply is lost, and if
// another client has written the znode.
func TestSet_SucceedsIfRequestOrReplyIsLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		p := openPresentPersistent(w, conn)
		token := p.Current().Token
		for i, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			hook(zktest.Match{Op: zktest.OpSetData, Path: onePath, Nth: 1}, zktest.Cut)
			data := fmt.Sprint("data ", i)
			require.NoError(w, p.Set(w.Context(), []byte(data)))
			require.Equal(w, data, dataOf(w, conn, onePath))
		}
		require.NoError(w, w.Server.SetVersion(onePath, 77), "as if another client had written it")
		require.NoError(w, p.Set(w.Context(), []byte("mine")))
		require.Equal(w, "mine", dataOf(w, conn, onePath))
		require.Equal(w, token, p.Current().Token)
		require.ErrorIs(w, p.Set(w.Context(), make([]byte, 1<<20)), recipes.ErrInvalid)
		require.NoError(w, p.Close())
	})
}

// TestPersistent_EndsWithoutConnectionOrPermission checks that a Persistent ends when its connection is closed,
// and when the client is not permitted to create the znode.
func TestPersistent_EndsWithoutConnectionOrPermission(t *testing.T) {
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

// TestPersistent_SurvivesExceededQuotaAfterFirstCreate checks that a Persistent whose quota is exceeded for some
// time ends only if it has not created the znode before.
func TestPersistent_SurvivesExceededQuotaAfterFirstCreate(t *testing.T) {
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
