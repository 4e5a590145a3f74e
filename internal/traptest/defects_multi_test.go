package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const register = "/register" // what leaders write to

func writes(data string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: register, Data: []byte(data), Version: -1}
}

func (h *harness) registered() string {
	h.Helper()
	data, _, err := h.operator.Get(register)
	require.NoError(h, err)
	return string(data)
}

func withRegister(t *testing.T, f func(h *harness)) {
	withServers(t, 1, func(h *harness) {
		_, err := h.operator.Create(register, []byte("initial"), 0, openACL)
		require.NoError(h, err)
		f(h)
	})
}

// C18: nothing kept a former leader from writing. A transaction of a leader is
// applied whole or not at all, and one of openACL else never.
func TestC18_FencedMulti(t *testing.T) {
	withRegister(t, func(h *harness) {
		leader, follower := h.join(h.connect()), h.join(h.connect())
		_, err := follower.multi(writes("follower"))
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		responses, err := leader.multi()
		require.NoError(h, err)
		require.Empty(h, responses)
		responses, err = leader.multi(writes("leader"), &zk.CreateRequest{Path: "/a", Acl: openACL})
		require.NoError(h, err)
		require.Len(h, responses, 2, "one for each of the caller's")
		require.Equal(h, "/a", responses[1].String)
		require.Equal(h, "leader", h.registered())

		// What ZooKeeper has against it is not taken for the loss of leadership.
		for _, refused := range []struct {
			op  any
			err error
		}{
			{&zk.CreateRequest{Path: "/a", Acl: openACL}, zk.ErrNodeExists},
			{&zk.DeleteRequest{Path: "/missing", Version: -1}, zk.ErrNoNode},
			{&zk.CheckVersionRequest{Path: "/a", Version: 7}, zk.ErrBadVersion},
		} {
			responses, err = leader.multi(writes("half"), refused.op)
			require.ErrorIs(h, err, refused.err)
			require.NotErrorIs(h, err, leaderelection.ErrNotLeader)
			require.Len(h, responses, 2)
		}
		require.Equal(h, "leader", h.registered())

		require.NoError(h, leader.Resign())
		h.advance(0)
		_, err = leader.multi(writes("resigned"))
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		_, err = follower.multi(writes("next"))
		require.NoError(h, err)
		require.Equal(h, "next", h.registered())
	})
}

// C18: a transaction that is on its way while somebody else wins, or that a
// leader sends who does not know of it yet, is refused by the ensemble.
func TestC18_FencedMultiTooLate(t *testing.T) {
	for name, direction := range map[string]zktest.Direction{"held on its way": zktest.ToServer, "sent in ignorance": zktest.ToClient} {
		t.Run(name, func(t *testing.T) {
			withRegister(t, func(h *harness) {
				leader, follower := h.join(h.connect()), h.join(h.connect())
				old, session := leader.requireLeads(), leader.conn.SessionID()
				h.srv.Blackhole(direction, session)
				if direction == zktest.ToClient {
					require.NoError(h, h.operator.Delete(leader.ID(), -1))
				}
				written := make(chan error, 1)
				go func() {
					_, err := leader.multi(writes("too late"))
					written <- err
				}()
				h.advance(0)
				if direction == zktest.ToServer {
					require.NoError(h, h.operator.Delete(leader.ID(), -1))
				}
				h.advance(0)
				next := follower.requireLeads()
				if direction == zktest.ToClient {
					require.NoError(h, old.Err(), "it still believes to lead")
				}
				require.Greater(h, next.Token(), old.Token())
				_, err := follower.multi(writes("new"))
				require.NoError(h, err)
				h.srv.Heal(session)
				require.ErrorIs(h, <-written, leaderelection.ErrNotLeader)
				require.Equal(h, "new", h.registered())
			})
		})
	}
}

// C18: of a transaction whose answer is lost nobody can say whether it was
// applied, and that is what is said, in bounded time.
func TestC18_FencedMultiUnconfirmed(t *testing.T) {
	withRegister(t, func(h *harness) {
		leader := h.join(h.connect())
		session := leader.conn.SessionID()
		for _, set := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{h.srv.Before, h.srv.After} {
			set(zktest.Match{Op: zktest.OpMulti, Session: session, Path: register, Nth: 1}, zktest.Cut)
			_, err := leader.multi(writes("perhaps"))
			require.ErrorIs(h, err, leaderelection.ErrUnconfirmed)
			require.NotErrorIs(h, err, leaderelection.ErrNotLeader)
			h.advance(timeout)
			require.Equal(h, leaderelection.Leader, leader.Current().Role)
		}
		require.Equal(h, "perhaps", h.registered(), "the second was applied")
	})
}

// C18: and in bounded time, however long the client goes on waiting.
func TestC18_FencedMultiReturns(t *testing.T) {
	withRegister(t, func(h *harness) {
		conn, _, err := h.ensemble.ConnectFrom(0, time.Minute)
		require.NoError(h, err)
		leader := h.join(conn)
		h.advance(time.Second)
		grant := leader.requireLeads()
		done := doneTime(grant)
		h.srv.Blackhole(zktest.BothWays, conn.SessionID())
		_, err = leader.multi(writes("no answer"))
		require.ErrorIs(h, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(h, err, leaderelection.ErrLeaseExpired)
		require.Equal(h, grant.Deadline(), done.time())
		require.Equal(h, 1500*time.Millisecond, time.Since(done.time()))
		require.Equal(h, zk.StateHasSession, conn.State())
	})
}
