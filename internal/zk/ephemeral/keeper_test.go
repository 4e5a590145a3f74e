package ephemeral

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const treeWithoutMember = "/\n  members container\n"

// keep starts a Keeper. The function states returns the states that the Keeper has reported.
func keep(w *bubble.Test, s *recipe.Setup) (k *Keeper, states func() []State) {
	var mu sync.Mutex
	var reported []State
	k = Keep(s, Config{Path: node, Data: []byte("data"), Report: func(s State) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, s)
	}})
	return k, func() []State {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(reported)
	}
}

// keepPresent starts a Keeper and waits until its znode is present.
func keepPresent(w *bubble.Test, s *recipe.Setup) (k *Keeper, states func() []State) {
	k, states = keep(w, s)
	require.NoError(w, k.AwaitPresent(w.Context()))
	return k, states
}

// TestKeeper_KeepsZnodeWhenConnectionBreaks checks that a short break of the connection neither deletes the znode
// of a Keeper nor makes the Keeper send a write.
// Scenario 21 of docs/traps.md.
func TestKeeper_KeepsZnodeWhenConnectionBreaks(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		k, states := keepPresent(w, s)
		before := w.Server.Tree()
		w.Server.ResetLog()
		w.Server.Blackhole(zktest.BothWays, s.Conn.SessionID())
		time.Sleep(3 * time.Second) // long enough for a lease to expire, if a Keeper required one
		w.Server.Heal(s.Conn.SessionID())
		time.Sleep(time.Minute)
		require.True(w, k.State().Present)
		require.False(w, slices.ContainsFunc(states(), func(s State) bool { return !s.Present }), "%v", states())
		require.Equal(w, before, w.Server.Tree())
		require.Zero(w, w.Server.Log().Count(zktest.OpCreate, zktest.OpMulti, zktest.OpDelete), "%v", w.Server.Log())
		require.NoError(w, k.Close(w.Context(), errDone))
		require.Equal(w, treeWithoutMember, w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}

// TestKeeper_ReportsLossOfZnodeWithReason checks that a Keeper reports the loss of its znode with the reason, for
// each way in which the znode can be lost.
func TestKeeper_ReportsLossOfZnodeWithReason(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(w *bubble.Test, s *recipe.Setup)
		want error
	}{
		"session expired, deletion reported first": {func(w *bubble.Test, s *recipe.Setup) { require.NoError(w, w.Server.ExpireSession(s.Conn.SessionID())) }, connection.ErrDeleted},
		"session expired while disconnected": {func(w *bubble.Test, s *recipe.Setup) {
			w.Server.Refuse(true)
			w.Server.DropConnections()
			require.NoError(w, w.Server.ExpireSession(s.Conn.SessionID()))
			time.Sleep(time.Second)
			w.Server.Refuse(false)
		}, connection.ErrSessionExpired},
		"deleted": {func(w *bubble.Test, s *recipe.Setup) { require.NoError(w, connect(w).Conn.Delete(node, -1)) }, connection.ErrDeleted},
		"deleted while disconnected, and the watch is not set again": {func(w *bubble.Test, s *recipe.Setup) {
			other := connect(w).Conn
			w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.Server.DropConnections(s.Conn.SessionID())
			require.NoError(w, other.Delete(node, -1))
		}, connection.ErrDeleted},
		"connection closed, deletion reported first": {func(w *bubble.Test, s *recipe.Setup) { s.Conn.Close() }, connection.ErrDeleted},
		"connection closed while disconnected": {func(w *bubble.Test, s *recipe.Setup) {
			w.Server.Refuse(true)
			w.Server.DropConnections()
			time.Sleep(time.Second)
			s.Conn.Close()
		}, connection.ErrConnClosed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				s := connect(w)
				losses := make(chan State, 10)
				k := Keep(s, Config{Path: node, Report: func(s State) {
					if !s.Present {
						losses <- s
					}
				}})
				require.NoError(w, k.AwaitPresent(w.Context()))
				test.lose(w, s)
				require.ErrorIs(w, (<-losses).Err, test.want)
				s.Conn.Close()
				<-k.Done()
				require.ErrorIs(w, k.Err(), connection.ErrConnClosed)
			})
		})
	}
}

// TestKeeper_CloseWaitsForCreateInFlight checks that Close waits for the reply to a create that is in flight, and
// deletes the created znode.
// Scenario 40 of docs/traps.md.
func TestKeeper_CloseWaitsForCreateInFlight(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		_, err := s.Conn.Create("/members", nil, 0, s.ACL)
		require.NoError(w, err)
		w.Server.Delay(zktest.ToClient, time.Second, s.Conn.SessionID())
		k, states := keep(w, s)
		time.Sleep(100 * time.Millisecond)
		require.Contains(w, w.Server.Tree(), "one")
		require.NoError(w, k.Close(w.Context(), errDone))
		require.NotContains(w, w.Server.Tree(), "one")
		require.Equal(w, []State{{Err: errDone, Ended: true}}, states())
	})
}

// TestKeeper_CloseRemovesZnodeOfNextSession checks that Close waits for a create that the client sends in the next
// session, and deletes the created znode.
// Scenario 40 of docs/traps.md.
func TestKeeper_CloseRemovesZnodeOfNextSession(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		require.NoError(w, s.MakeDir(w.Context()))
		require.NoError(w, w.Server.ExpireSession(s.Conn.SessionID()))
		w.Server.Before(zktest.Match{Op: zktest.OpConnect, Nth: 2}, func(q *zktest.Request) zktest.Verdict {
			time.Sleep(time.Second)
			return zktest.Pass(q)
		})
		for s.Conn.SessionID() != 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		require.Zero(w, s.Conn.SessionID())
		k, _ := keep(w, s)
		time.Sleep(10 * time.Millisecond)
		require.NoError(w, k.Close(w.Context(), errDone))
		require.ErrorIs(w, k.Err(), errDone)
		require.NotZero(w, s.Conn.SessionID())
		require.Equal(w, treeWithoutMember, w.Server.Tree())
	})
}

// TestKeeper_AcceptsZnodeCreatedInNextSession checks that a Keeper does not take its znode for the znode of
// another client if the session has expired while the create was waiting, and the server has applied the create in
// the next session (CURATOR-696).
// Scenario 11 of docs/traps.md.
func TestKeeper_AcceptsZnodeCreatedInNextSession(t *testing.T) {
	for name, lost := range map[string]bool{"reply received": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := zktest.StartEnsemble(t, 3)
				w := &bubble.Test{T: t, Server: c.Leader()}
				conn := bubble.ConnectFrom(w, c, 0, timeout)
				s := setup(w, conn)
				require.NoError(w, s.MakeDir(w.Context()))
				before := conn.SessionID()
				c.Server(0).Before(zktest.Match{Op: zktest.OpConnect, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					require.NoError(w, w.Server.ExpireSession(before))
					time.Sleep(time.Second)
					return zktest.Pass(q)
				})
				if lost {
					w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
				}
				for i := range c.Len() {
					c.Server(i).DropConnections()
				}
				time.Sleep(500 * time.Millisecond)
				require.Equal(w, before, conn.SessionID())
				k, _ := keepPresent(w, s)
				token, owner := k.State().Czxid, k.State().Owner
				require.NotEqual(w, before, owner)
				require.Equal(w, conn.SessionID(), owner)
				time.Sleep(time.Minute)
				require.Equal(w, State{Present: true, Owner: owner, Czxid: token}, k.State())
				require.NoError(w, k.Close(w.Context(), errDone))
				require.NotContains(w, c.Tree(), "one")
			})
		})
	}
}

// TestKeeper_WaitsForOtherKeeperOfConnection checks that only one of two Keepers of a connection, which have the
// same session, takes the znode for its own, even if the reply to the create of the first Keeper is lost.
func TestKeeper_WaitsForOtherKeeperOfConnection(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		w.Server.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
		first, _ := keep(w, s)
		synctest.Wait() // wait until the Keeper pauses after the lost reply
		second, _ := keep(w, s)
		require.NoError(w, first.AwaitPresent(w.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		taken := second.State()
		require.False(w, taken.Present)
		var err *TakenError
		require.ErrorAs(w, taken.Err, &err)
		require.NoError(w, first.Close(w.Context(), errDone))
		require.NoError(w, second.AwaitPresent(w.Context()))
		require.NoError(w, second.Close(w.Context(), errDone))
		require.Equal(w, treeWithoutMember, w.Server.Tree())
	})
}

// TestKeeper_ReturnsRejectionOfWrite checks that a Keeper without Retry returns the error of a write that the
// server has rejected, and writes the next data.
func TestKeeper_ReturnsRejectionOfWrite(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		k, states := keepPresent(w, s)
		w.Server.Before(zktest.Match{Op: zktest.OpSetData, Path: node, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		require.ErrorIs(w, k.AwaitWritten(w.Context(), k.Set([]byte("rejected"))), connection.ErrPermission)
		require.NoError(w, k.AwaitWritten(w.Context(), k.Set([]byte("accepted"))))
		require.Contains(w, w.Server.Tree(), "accepted")
		require.Len(w, states(), 1, "%v", states())
		require.NoError(w, k.Close(w.Context(), errDone))
	})
}

// TestKeeper_RetriesRejectedRequests checks that a Keeper with Retry repeats a create and a write that the server
// has rejected, until the server accepts the request.
func TestKeeper_RetriesRejectedRequests(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		s := connect(w)
		hook := w.Server.Before(zktest.Match{Op: zktest.OpCreate, Path: node}, zktest.Fail(zk.ErrNoAuth))
		k := Keep(s, Config{Path: node, Data: []byte("first"), Retry: true, Report: func(State) {}})
		require.ErrorIs(w, k.AwaitWritten(w.Context(), 1), connection.ErrPermission)
		time.Sleep(time.Minute)
		hook.Remove()
		time.Sleep(time.Minute)
		require.Contains(w, w.Server.Tree(), "first")
		hook = w.Server.Before(zktest.Match{Op: zktest.OpSetData, Path: node}, zktest.Fail(zk.ErrNoAuth))
		require.ErrorIs(w, k.AwaitWritten(w.Context(), k.Set([]byte("second"))), connection.ErrPermission)
		time.Sleep(time.Minute)
		require.ErrorIs(w, k.State().Err, connection.ErrPermission)
		hook.Remove()
		time.Sleep(time.Minute)
		require.Contains(w, w.Server.Tree(), "second")
		require.NoError(w, k.State().Err)
		require.NoError(w, k.Close(w.Context(), errDone))
	})
}
