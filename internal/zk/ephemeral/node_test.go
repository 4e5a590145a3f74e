package ephemeral

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node    = "/members/one"
	timeout = 4 * time.Second
	without = "/\n  members container\n"
)

var errDone = errors.New("done")

// fixture is a test in a bubble with a server.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

func runTest(t *testing.T, f func(w fixture)) {
	synctest.Test(t, func(t *testing.T) { f(fixture{t, zktest.Start(t)}) })
}

func (w fixture) connect() *recipe.Setup {
	return w.setup(bubble.Connect(w, w.srv, timeout))
}

func (w fixture) setup(conn *zk.Conn) *recipe.Setup {
	s, err := recipe.New(conn, "/members", []recipe.Shared{recipe.WithTimeout(timeout)}, recipe.Shared.ApplyGroup)
	require.NoError(w, err)
	return s
}

func TestCreate_ExistsUntilRemoved(t *testing.T) {
	runTest(t, func(w fixture) {
		s := w.connect()
		n, err := Create(w.Context(), s, node, []byte("data"))
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Grant().Err())
		require.NotZero(w, n.Grant().Token())

		var taken *TakenError
		_, err = Create(w.Context(), w.connect(), node, nil)
		require.ErrorAs(w, err, &taken)
		require.Equal(w, n.Owner(), taken.Owner)
		require.Equal(w, n.Grant().Token(), taken.Czxid)
		_, err = Create(w.Context(), s, node, nil)
		require.ErrorAs(w, err, &taken, "the znode of another user of the same session")
		require.Equal(w, n.Grant().Token(), taken.Czxid)

		time.Sleep(time.Minute)
		require.NoError(w, n.Grant().Err())
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.ErrorIs(w, n.Grant().Err(), errDone)
		require.Equal(w, without, w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}

// Fails if a lost reply leaves a znode behind, or makes Create return an error.
func TestTrap01_ReplyOrRequestLost(t *testing.T) {
	runTest(t, func(w fixture) {
		s := w.connect()
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.srv.Before, w.srv.After} {
			hook(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
			n, err := Create(w.Context(), s, node, nil)
			require.NoError(w, err)
			require.NoError(w, n.Grant().Err())
			require.NoError(w, n.Remove(w.Context(), errDone))
			require.Equal(w, without, w.srv.Tree())
		}
	})
}

// CURATOR-498, KAFKA-1387: fails if the znode of an expired session is used.
func TestTrap02_SessionExpiresBeforeTheReply(t *testing.T) {
	runTest(t, func(w fixture) {
		s := w.connect()
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.srv.ExpireSession(q.Session))
			return zktest.Cut(q)
		})
		n, err := Create(w.Context(), s, node, nil)
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Remove(w.Context(), errDone))
	})
}

// Fails if the grant does not end with the znode or its lease, or ends with another reason.
func TestGrant_EndsWithTheZnodeOrTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(w fixture, s *recipe.Setup)
		want error
	}{
		"session expired, deletion reported first": {func(w fixture, s *recipe.Setup) { require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID())) }, connection.ErrDeleted},
		"server unreachable":                       {func(w fixture, s *recipe.Setup) { w.srv.Blackhole(zktest.BothWays, s.Conn.SessionID()) }, connection.ErrLeaseExpired},
		"session expired while disconnected": {func(w fixture, s *recipe.Setup) {
			w.srv.Refuse(true)
			w.srv.DropConnections() // otherwise the client may receive the event of the deletion
			require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID()))
		}, connection.ErrLeaseExpired},
		"deleted": {func(w fixture, s *recipe.Setup) { require.NoError(w, w.connect().Conn.Delete(node, -1)) }, connection.ErrDeleted},
		"connection closed, deletion reported first": {func(w fixture, s *recipe.Setup) { s.Conn.Close() }, connection.ErrDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				s := w.connect()
				n, err := Create(w.Context(), s, node, nil)
				require.NoError(w, err)
				test.lose(w, s)
				<-n.Grant().Context().Done()
				require.ErrorIs(w, n.Grant().Err(), test.want)
				if name == "server unreachable" {
					require.Contains(w, w.srv.Tree(), "one", "the grant ends before the znode is deleted")
				}
				w.srv.Refuse(false)
				require.NoError(w, n.Remove(w.Context(), errDone))
				require.NotContains(w, w.srv.Tree(), "one")
			})
		})
	}
}

// Fails if Create does not return when its context is done, or leaves the znode behind.
func TestTrap06_ContextIsDoneFirst(t *testing.T) {
	runTest(t, func(w fixture) {
		s := w.connect()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := s.Conn.Create("/members", nil, 0, s.ACL)
		require.NoError(w, err)
		w.srv.Delay(zktest.ToClient, 1500*time.Millisecond, s.Conn.SessionID())
		_, err = Create(ctx, s, node, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Contains(w, w.srv.Tree(), "one")
		w.srv.Delay(zktest.ToClient, 0, s.Conn.SessionID())
		time.Sleep(time.Minute)
		require.NotContains(w, w.srv.Tree(), "one")
		require.Equal(w, 1, len(w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpDelete && e.Code == 0 })), "%v", w.srv.Log())
	})
}

func TestCreate_WithoutPermission(t *testing.T) {
	runTest(t, func(w fixture) {
		s := w.connect()
		_, err := s.Conn.Create("/members", nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		_, err = Create(w.Context(), s, node, nil)
		require.ErrorIs(w, connection.Refine(nil, err), connection.ErrPermission)
	})
}

// Fails if Create returns a grant for a znode that was deleted before it was read.
func TestCreate_DeletedBeforeItIsRead(t *testing.T) {
	runTest(t, func(w fixture) {
		s, other := w.connect(), w.connect().Conn
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: node}, func(q *zktest.Request) zktest.Verdict {
			_ = other.Delete(node, -1)
			return zktest.Pass(q)
		})
		_, err := Create(w.Context(), s, node, nil)
		require.ErrorIs(w, err, connection.ErrDeleted)
	})
}
