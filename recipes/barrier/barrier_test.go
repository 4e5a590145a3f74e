package barrier

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestBarrierHoldsWhileItIsSet(t *testing.T) {
	play(t, func(w world) {
		b := w.barrier(w.connect())
		require.NoError(w, b.Wait(w.Context()), "there is none")
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

// kazoo #175, CURATOR-14: a watch more for each wait that was given up.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		b := w.barrier(conn)
		require.NoError(w, b.Set(w.Context()))
		for range 10 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			require.ErrorIs(w, b.Wait(ctx), context.DeadlineExceeded)
			cancel()
			require.Equal(w, 1, channels(conn))
		}
		require.NoError(w, b.Remove(w.Context()))
		require.NoError(w, b.Set(w.Context()))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(w, b.Wait(ctx), context.DeadlineExceeded, "the old watch has fired")
	})
}

// CURATOR-107: asking for what is not there leaves a watch.
func TestTrap24_NoWatchWhereThereIsNoBarrier(t *testing.T) {
	play(t, func(w world) {
		b := w.barrier(w.connect())
		for range 3 {
			require.NoError(w, b.Wait(w.Context()))
		}
		require.Empty(w, w.srv.Watches())
	})
}

// kazoo's Barrier never hears of a removal while it was out of reach.
func TestTrap27_RemovedWhileOutOfReach(t *testing.T) {
	for name, away := range map[string]func(w world, id int64){
		"same session":  func(w world, id int64) { w.srv.DropConnections(id) },
		"other session": func(w world, id int64) { require.NoError(w, w.srv.ExpireSession(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w world) {
				conn := w.connect()
				b := w.barrier(conn)
				require.NoError(w, b.Set(w.Context()))
				through := make(chan error, 1)
				go func() { through <- b.Wait(w.Context()) }()
				synctest.Wait()
				operator := w.barrier(w.connect())
				// The client's attempt to set its watches anew fails, and it tries once.
				w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
				away(w, conn.SessionID())
				require.NoError(w, operator.Remove(w.Context()))
				require.NoError(w, <-through)
			})
		})
	}
}

func TestBarrierOfAClosedConnection(t *testing.T) {
	play(t, func(w world) {
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

func TestBadInput(t *testing.T) {
	play(t, func(w world) {
		_, err := NewBarrier(nil, node)
		require.ErrorIs(w, err, recipes.ErrNilConn)
		_, err = NewBarrier(w.connect(), "gate")
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
		_, err = NewDouble(w.connect(), node, 0)
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		_, err = NewDouble(w.connect(), node, mostParticipants(node)+1)
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		_, err = NewDouble(w.connect(), "/", 1)
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
	})
}
