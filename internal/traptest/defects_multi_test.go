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

func (w *world) registered() string {
	w.Helper()
	data, _, err := w.operator.Get(register)
	require.NoError(w, err)
	return string(data)
}

func playWithRegister(t *testing.T, f func(w *world)) {
	play(t, 1, func(w *world) {
		_, err := w.operator.Create(register, []byte("initial"), 0, anybody)
		require.NoError(w, err)
		f(w)
	})
}

// C18: nothing kept a former leader from writing. A transaction of a leader is
// applied whole or not at all, and one of anybody else never.
func TestC18_FencedMulti(t *testing.T) {
	playWithRegister(t, func(w *world) {
		leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
		_, err := follower.Multi(writes("follower"))
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		responses, err := leader.Multi()
		require.NoError(w, err)
		require.Empty(w, responses)
		responses, err = leader.Multi(writes("leader"), &zk.CreateRequest{Path: "/a", Acl: anybody})
		require.NoError(w, err)
		require.Len(w, responses, 2, "one for each of the caller's")
		require.Equal(w, "/a", responses[1].String)
		require.Equal(w, "leader", w.registered())

		// What ZooKeeper has against it is not taken for the loss of leadership.
		for _, refused := range []struct {
			op  any
			err error
		}{
			{&zk.CreateRequest{Path: "/a", Acl: anybody}, zk.ErrNodeExists},
			{&zk.DeleteRequest{Path: "/missing", Version: -1}, zk.ErrNoNode},
			{&zk.CheckVersionRequest{Path: "/a", Version: 7}, zk.ErrBadVersion},
		} {
			responses, err = leader.Multi(writes("half"), refused.op)
			require.ErrorIs(w, err, refused.err)
			require.NotErrorIs(w, err, leaderelection.ErrNotLeader)
			require.Len(w, responses, 2)
		}
		require.Equal(w, "leader", w.registered())

		require.NoError(w, leader.Resign())
		w.pass(0)
		_, err = leader.Multi(writes("resigned"))
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		_, err = follower.Multi(writes("next"))
		require.NoError(w, err)
		require.Equal(w, "next", w.registered())
	})
}

// C18: a transaction that is on its way while somebody else wins, or that a
// leader sends who does not know of it yet, is refused by the ensemble.
func TestC18_FencedMultiTooLate(t *testing.T) {
	for name, direction := range map[string]zktest.Direction{"held on its way": zktest.ToServer, "sent in ignorance": zktest.ToClient} {
		t.Run(name, func(t *testing.T) {
			playWithRegister(t, func(w *world) {
				leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
				old, session := leader.leads(), leader.conn.SessionID()
				w.srv.Blackhole(direction, session)
				if direction == zktest.ToClient {
					require.NoError(w, w.operator.Delete(leader.ID(), -1))
				}
				written := make(chan error, 1)
				go func() {
					_, err := leader.Multi(writes("too late"))
					written <- err
				}()
				w.pass(0)
				if direction == zktest.ToServer {
					require.NoError(w, w.operator.Delete(leader.ID(), -1))
				}
				w.pass(0)
				next := follower.leads()
				if direction == zktest.ToClient {
					require.NoError(w, old.Err(), "it still believes to lead")
				}
				require.Greater(w, next.Token(), old.Token())
				_, err := follower.Multi(writes("new"))
				require.NoError(w, err)
				w.srv.Heal(session)
				require.ErrorIs(w, <-written, leaderelection.ErrNotLeader)
				require.Equal(w, "new", w.registered())
			})
		})
	}
}

// C18: of a transaction whose answer is lost nobody can say whether it was
// applied, and that is what is said, in bounded time.
func TestC18_FencedMultiUnconfirmed(t *testing.T) {
	playWithRegister(t, func(w *world) {
		leader := w.enlist(w.connect())
		session := leader.conn.SessionID()
		for _, set := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.srv.Before, w.srv.After} {
			set(zktest.Match{Op: zktest.OpMulti, Session: session, Path: register, Nth: 1}, zktest.Cut)
			_, err := leader.Multi(writes("perhaps"))
			require.ErrorIs(w, err, leaderelection.ErrUnconfirmed)
			require.NotErrorIs(w, err, leaderelection.ErrNotLeader)
			w.pass(timeout)
			require.Equal(w, leaderelection.Leader, leader.Current().Role)
		}
		require.Equal(w, "perhaps", w.registered(), "the second was applied")
	})
}

// C18: and in bounded time, however long the client goes on waiting.
func TestC18_FencedMultiReturns(t *testing.T) {
	playWithRegister(t, func(w *world) {
		conn, _, err := w.ensemble.ConnectFrom(0, time.Minute)
		require.NoError(w, err)
		leader := w.enlist(conn)
		w.pass(time.Second)
		grant := leader.leads()
		done := endOf(grant)
		w.srv.Blackhole(zktest.BothWays, conn.SessionID())
		_, err = leader.Multi(writes("no answer"))
		require.ErrorIs(w, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(w, err, leaderelection.ErrLeaseExpired)
		require.Equal(w, grant.Deadline(), done.time())
		require.Equal(w, 1500*time.Millisecond, time.Since(done.time()))
		require.Equal(w, zk.StateHasSession, conn.State())
	})
}
