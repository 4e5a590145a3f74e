package barrier

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestBarrier_BlocksWhileItIsSet checks that Wait does not return while the barrier is set, and returns after
// another client has removed the barrier.
func TestBarrier_BlocksWhileItIsSet(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		b := newBarrier(w, w.Connect())
		require.NoError(w, b.Wait(w.Context()), "it is not set")
		require.NoError(w, b.Remove(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		through := make(chan error, 3)
		for range 2 {
			go func() { through <- b.Wait(w.Context()) }()
		}
		go func() { through <- newBarrier(w, w.Connect()).Wait(w.Context()) }()
		time.Sleep(time.Hour)
		require.Empty(w, through)
		require.NoError(w, newBarrier(w, w.Connect()).Remove(w.Context()))
		synctest.Wait()
		require.Len(w, through, 3)
		for range 3 {
			require.NoError(w, <-through)
		}
		require.Empty(w, w.Server.Watches())
	})
}

// TestWait_AccumulatesNoWatches checks that calls of Wait whose contexts are done leave only one watch behind,
// however many calls there are (kazoo #175, CURATOR-14).
// Scenario 25 of docs/traps.md.
func TestWait_AccumulatesNoWatches(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		b := newBarrier(w, conn)
		require.NoError(w, b.Set(w.Context()))
		for range 10 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			require.ErrorIs(w, b.Wait(ctx), context.DeadlineExceeded)
			cancel()
			require.Equal(w, 1, bubble.Watches(conn))
		}
		require.NoError(w, b.Remove(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(w, b.Wait(ctx), context.DeadlineExceeded, "the first watch has fired")
	})
}

// TestWait_LeavesNoWatchIfBarrierDoesNotExist checks that Wait leaves no watch behind when the barrier does not
// exist (CURATOR-107).
// Scenario 24 of docs/traps.md.
func TestWait_LeavesNoWatchIfBarrierDoesNotExist(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		b := newBarrier(w, w.Connect())
		for range 3 {
			require.NoError(w, b.Wait(w.Context()))
		}
		require.Empty(w, w.Server.Watches())
	})
}

// TestWait_NoticesRemovalWhileDisconnected checks that Wait returns when another client has removed the barrier
// while the client was disconnected, unlike kazoo's Barrier.
// Scenario 27 of docs/traps.md.
func TestWait_NoticesRemovalWhileDisconnected(t *testing.T) {
	for name, disconnect := range map[string]func(w *bubble.Test, id int64){
		"same session":  func(w *bubble.Test, id int64) { w.Server.DropConnections(id) },
		"other session": func(w *bubble.Test, id int64) { require.NoError(w, w.Server.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				conn := w.Connect()
				b := newBarrier(w, conn)
				require.NoError(w, b.Set(w.Context()))
				through := make(chan error, 1)
				go func() { through <- b.Wait(w.Context()) }()
				synctest.Wait()
				operator := newBarrier(w, w.Connect())
				// The client library tries only once to set its watches again, and this try fails.
				w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				disconnect(w, conn.SessionID())
				require.NoError(w, operator.Remove(w.Context()))
				require.NoError(w, <-through)
			})
		})
	}
}

// TestWait_BlocksAfterSetOnLaggingServer checks that a client whose server lags behind waits at a barrier that was
// set before the call, even if the server still shows an earlier state without the barrier.
func TestWait_BlocksAfterSetOnLaggingServer(t *testing.T) {
	for name, earlier := range map[string]bool{"first barrier": false, "later barrier": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := zktest.StartEnsemble(t, 3)
				w := &bubble.Test{T: t}
				b := newBarrier(w, bubble.ConnectFrom(w, cluster, 0, timeout))
				waiting := newBarrier(w, bubble.ConnectFrom(w, cluster, 1, timeout))
				if earlier {
					require.NoError(w, b.Set(w.Context()))
					synctest.Wait()
				}
				cluster.Server(1).LagBy(time.Second)
				require.NoError(w, b.Remove(w.Context()))
				time.Sleep(time.Second / 2)
				require.NoError(w, b.Set(w.Context()))
				through := bubble.Async(func() error { return waiting.Wait(w.Context()) })
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Empty(w, through)
				require.NoError(w, b.Remove(w.Context()))
				require.NoError(w, <-through)
			})
		})
	}
}

// TestRemove_DeletesBarrierOnce checks that Remove deletes a barrier once even if the request or its reply is
// lost: if another client sets the barrier again before Remove retries, the new barrier must remain.
func TestRemove_DeletesBarrierOnce(t *testing.T) {
	remove := zktest.Match{Op: zktest.OpDelete, Nth: 1}
	for name, test := range map[string]struct {
		fault     func(w *bubble.Test, other *Barrier) *zktest.Hook
		remaining bool
	}{
		"request lost": {func(w *bubble.Test, _ *Barrier) *zktest.Hook { return w.Server.Before(remove, zktest.Cut) }, false},
		"reply lost":   {func(w *bubble.Test, _ *Barrier) *zktest.Hook { return w.Server.After(remove, zktest.Cut) }, false},
		"reply lost, and set again": {func(w *bubble.Test, other *Barrier) *zktest.Hook {
			return w.Server.After(remove, func(q *zktest.Request) zktest.Verdict {
				require.NoError(w, other.Set(w.Context()))
				return zktest.Cut(q)
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				conn := w.Connect()
				b, other := newBarrier(w, conn), newBarrier(w, w.Connect())
				require.NoError(w, b.Set(w.Context()))
				hook := test.fault(w, other)
				require.NoError(w, b.Remove(w.Context()))
				bubble.RequireRun(w, hook)
				exists, _, err := conn.Exists(node)
				require.NoError(w, err)
				require.Equal(w, test.remaining, exists)
			})
		})
	}
}

// TestWait_ReturnsWhenConnectionIsClosed checks that Wait returns ErrConnClosed when the connection is closed.
func TestWait_ReturnsWhenConnectionIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		b := newBarrier(w, conn)
		require.NoError(w, b.Set(w.Context()))
		through := make(chan error, 1)
		go func() { through <- b.Wait(w.Context()) }()
		synctest.Wait()
		conn.Close()
		require.ErrorIs(w, <-through, recipes.ErrConnClosed)
	})
}

// TestNew_RejectsInvalidParameters checks that New and NewDouble return ErrInvalid for invalid parameters.
func TestNew_RejectsInvalidParameters(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		_, err := New(nil, node)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = New(w.Connect(), "gate")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.Connect(), node, 0)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.Connect(), node, mostParticipants(node)+1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.Connect(), "/", 1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
	})
}
