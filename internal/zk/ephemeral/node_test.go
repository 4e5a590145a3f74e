package ephemeral

import (
	"context"
	"errors"
	"testing"
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
	node             = "/members/one"
	timeout          = bubble.SessionTimeout
	treeWithoutZnode = "/\n  members\n"
)

// returnTaken is an argument for Create that makes Create return the error instead of waiting for other clients.
func returnTaken(e *TakenError) error { return e }

var errDone = errors.New("done")

func connect(w *bubble.Test) *recipe.Setup {
	return setup(w, w.Connect())
}

func setup(w *bubble.Test, conn *zk.Conn) *recipe.Setup {
	s, err := recipe.New(conn, "/members", []recipe.Shared{func(s *recipe.Setup) { s.SetTimeout(timeout) }}, recipe.Shared.ApplyGroup)
	require.NoError(w, err)
	return s
}

// TestCreate_KeepsZnodeUntilRemove checks that the znode of Create exists until Remove, and that Create does not
// replace an existing znode, but returns an error that identifies the owner.
func TestCreate_KeepsZnodeUntilRemove(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		n, err := Create(w.Context(), s, node, []byte("data"), returnTaken)
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Grant().Err())
		require.NotZero(w, n.Grant().Token())

		var other *TakenError
		_, err = Create(w.Context(), connect(w), node, nil, returnTaken)
		require.ErrorAs(w, err, &other)
		require.Equal(w, n.Owner(), other.Owner)
		require.Equal(w, n.Grant().Token(), other.Czxid)
		_, err = Create(w.Context(), s, node, nil, returnTaken)
		require.ErrorAs(w, err, &other, "the znode of another user of the same session")
		require.Equal(w, n.Grant().Token(), other.Czxid)

		time.Sleep(time.Minute)
		require.NoError(w, n.Grant().Err())
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.ErrorIs(w, n.Grant().Err(), errDone)
		require.Equal(w, treeWithoutZnode, w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}

// TestCreate_SucceedsIfReplyOrRequestIsLost checks that a lost request or reply neither leaves a second znode nor
// makes Create return an error.
// Scenario 1 of docs/traps.md.
func TestCreate_SucceedsIfReplyOrRequestIsLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			hook(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
			n, err := Create(w.Context(), s, node, nil, returnTaken)
			require.NoError(w, err)
			require.NoError(w, n.Grant().Err())
			require.NoError(w, n.Remove(w.Context(), errDone))
			require.Equal(w, treeWithoutZnode, w.Server.Tree())
		}
	})
}

// TestCreate_IgnoresZnodeOfExpiredSession checks that Create does not use the znode of a session that expires
// before the reply, but creates a znode in the next session (CURATOR-498, KAFKA-1387).
// Scenario 2 of docs/traps.md.
func TestCreate_IgnoresZnodeOfExpiredSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.Server.ExpireSession(q.Session))
			return zktest.Cut(q)
		})
		n, err := Create(w.Context(), s, node, nil, returnTaken)
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Remove(w.Context(), errDone))
	})
}

// TestGrant_EndsWithZnodeOrLease checks that the grant ends when the znode is lost or its lease expires, and with
// the error for this reason.
func TestGrant_EndsWithZnodeOrLease(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(w *bubble.Test, s *recipe.Setup)
		want error
	}{
		"session expired, deletion reported first": {func(w *bubble.Test, s *recipe.Setup) { require.NoError(w, w.Server.ExpireSession(s.Conn.SessionID())) }, connection.ErrDeleted},
		"server unreachable":                       {func(w *bubble.Test, s *recipe.Setup) { w.Server.Blackhole(zktest.BothWays, s.Conn.SessionID()) }, connection.ErrLeaseExpired},
		"session expired while disconnected": {func(w *bubble.Test, s *recipe.Setup) {
			w.Server.Refuse(true)
			w.Server.DropConnections() // without a connection the client cannot receive the event of the deletion
			require.NoError(w, w.Server.ExpireSession(s.Conn.SessionID()))
		}, connection.ErrLeaseExpired},
		"deleted": {func(w *bubble.Test, s *recipe.Setup) { require.NoError(w, connect(w).Conn.Delete(node, -1)) }, connection.ErrDeleted},
		"connection closed, deletion reported first": {func(w *bubble.Test, s *recipe.Setup) { s.Conn.Close() }, connection.ErrDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				s := connect(w)
				n, err := Create(w.Context(), s, node, nil, returnTaken)
				require.NoError(w, err)
				test.lose(w, s)
				<-n.Grant().Context().Done()
				require.ErrorIs(w, n.Grant().Err(), test.want)
				if name == "server unreachable" {
					require.Contains(w, w.Server.Tree(), "one", "the grant ends before the znode is deleted")
				}
				w.Server.Refuse(false)
				require.NoError(w, n.Remove(w.Context(), errDone))
				require.NotContains(w, w.Server.Tree(), "one")
			})
		})
	}
}

// TestCreate_DeletesZnodeIfContextIsDone checks that Create returns when its context is done before the reply, and
// deletes the znode that the server creates nevertheless.
// Scenario 6 of docs/traps.md.
func TestCreate_DeletesZnodeIfContextIsDone(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := s.Conn.Create("/members", nil, 0, s.ACL)
		require.NoError(w, err)
		w.Server.Delay(zktest.ToClient, 1500*time.Millisecond, s.Conn.SessionID())
		_, err = Create(ctx, s, node, nil, returnTaken)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Contains(w, w.Server.Tree(), "one")
		w.Server.Delay(zktest.ToClient, 0, s.Conn.SessionID())
		time.Sleep(time.Minute)
		require.NotContains(w, w.Server.Tree(), "one")
		require.Equal(w, 1, len(w.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpDelete && e.Code == 0 })), "%v", w.Server.Log())
	})
}

// TestCreate_ReportsMissingPermission checks that the error of Create wraps ErrPermission if the ACL of the
// directory denies the create.
func TestCreate_ReportsMissingPermission(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		_, err := s.Conn.Create("/members", nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		_, err = Create(w.Context(), s, node, nil, returnTaken)
		require.ErrorIs(w, connection.Refine(nil, err), connection.ErrPermission)
	})
}

// TestCreate_ReportsDeletionBeforeRead checks that Create returns an error and no grant if another client deletes
// the znode before Create has read it.
func TestCreate_ReportsDeletionBeforeRead(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s, other := connect(w), connect(w).Conn
		w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: node}, func(q *zktest.Request) zktest.Verdict {
			_ = other.Delete(node, -1)
			return zktest.Pass(q)
		})
		_, err := Create(w.Context(), s, node, nil, returnTaken)
		require.ErrorIs(w, err, connection.ErrDeleted)
	})
}

// TestNode_RemoveDeletesZnodeForAnyReason checks that Remove deletes the znode even if the reason of the caller is
// an error that also describes the loss of a znode: the reason can be the loss of another znode.
func TestNode_RemoveDeletesZnodeForAnyReason(t *testing.T) {
	for _, reason := range []error{errDone, connection.ErrDeleted, connection.ErrSessionExpired} {
		bubble.Run(t, func(w *bubble.Test) {
			n, err := Create(w.Context(), connect(w), node, nil, returnTaken)
			require.NoError(w, err)
			require.NotEqual(w, treeWithoutZnode, w.Server.Tree())
			require.NoError(w, n.Remove(w.Context(), reason))
			require.Equal(w, treeWithoutZnode, w.Server.Tree(), "%v", reason)
		})
	}
}
