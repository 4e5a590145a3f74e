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

func TestBarrier_BlocksWhileItIsSet(t *testing.T) {
	runTest(t, func(w fixture) {
		b := w.barrier(w.connect())
		require.NoError(w, b.Wait(w.Context()), "it is not set")
		require.NoError(w, b.Remove(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		through := make(chan error, 3)
		for range 2 {
			go func() { through <- b.Wait(w.Context()) }()
		}
		go func() { through <- w.barrier(w.connect()).Wait(w.Context()) }()
		time.Sleep(time.Hour)
		require.Empty(w, through)
		require.NoError(w, w.barrier(w.connect()).Remove(w.Context()))
		synctest.Wait()
		require.Len(w, through, 3)
		for range 3 {
			require.NoError(w, <-through)
		}
		require.Empty(w, w.srv.Watches())
	})
}

// kazoo #175, CURATOR-14: fails if each Wait whose context is done leaves another watch behind.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		b := w.barrier(conn)
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

// CURATOR-107: fails if Wait leaves a watch behind although the barrier does not exist.
func TestTrap24_NoWatchIfTheBarrierDoesNotExist(t *testing.T) {
	runTest(t, func(w fixture) {
		b := w.barrier(w.connect())
		for range 3 {
			require.NoError(w, b.Wait(w.Context()))
		}
		require.Empty(w, w.srv.Watches())
	})
}

// Fails if Wait misses that the barrier was removed while the client was disconnected, as kazoo's
// Barrier does.
func TestTrap27_RemovedWhileDisconnected(t *testing.T) {
	for name, disconnect := range map[string]func(w fixture, id int64){
		"same session":  func(w fixture, id int64) { w.srv.DropConnections(id) },
		"other session": func(w fixture, id int64) { require.NoError(w, w.srv.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				conn := w.connect()
				b := w.barrier(conn)
				require.NoError(w, b.Set(w.Context()))
				through := make(chan error, 1)
				go func() { through <- b.Wait(w.Context()) }()
				synctest.Wait()
				operator := w.barrier(w.connect())
				// The client library tries only once to set its watches again, and fails.
				w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				disconnect(w, conn.SessionID())
				require.NoError(w, operator.Remove(w.Context()))
				require.NoError(w, <-through)
			})
		})
	}
}

// A client whose server lags behind waits at a barrier that was set before, also if that server
// still shows the removal of an earlier barrier.
func TestBarrier_LaggingServer(t *testing.T) {
	for name, earlier := range map[string]bool{"first barrier": false, "later barrier": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := zktest.StartEnsemble(t, 3)
				w := fixture{T: t}
				b := w.barrier(bubble.ConnectFrom(w, cluster, 0, timeout))
				waiting := w.barrier(bubble.ConnectFrom(w, cluster, 1, timeout))
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

// Remove removes a barrier once, also if messages are lost: another client may set it again before
// the delete is repeated.
func TestBarrier_RemovedOnce(t *testing.T) {
	remove := zktest.Match{Op: zktest.OpDelete, Nth: 1}
	for name, test := range map[string]struct {
		fault     func(w fixture, other *Barrier) *zktest.Hook
		remaining bool
	}{
		"request lost": {func(w fixture, _ *Barrier) *zktest.Hook { return w.srv.Before(remove, zktest.Cut) }, false},
		"reply lost":   {func(w fixture, _ *Barrier) *zktest.Hook { return w.srv.After(remove, zktest.Cut) }, false},
		"reply lost, and set again": {func(w fixture, other *Barrier) *zktest.Hook {
			return w.srv.After(remove, func(q *zktest.Request) zktest.Verdict {
				require.NoError(w, other.Set(w.Context()))
				return zktest.Cut(q)
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				conn := w.connect()
				b, other := w.barrier(conn), w.barrier(w.connect())
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

func TestBarrier_ConnectionClosed(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		b := w.barrier(conn)
		require.NoError(w, b.Set(w.Context()))
		through := make(chan error, 1)
		go func() { through <- b.Wait(w.Context()) }()
		synctest.Wait()
		conn.Close()
		require.ErrorIs(w, <-through, recipes.ErrConnClosed)
	})
}

func TestNew_InvalidParameters(t *testing.T) {
	runTest(t, func(w fixture) {
		_, err := New(nil, node)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = New(w.connect(), "gate")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.connect(), node, 0)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.connect(), node, mostParticipants(node)+1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewDouble(w.connect(), "/", 1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
	})
}
