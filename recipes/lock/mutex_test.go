package lock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second // of sessions

// connect opens a session and lets it come about. Call it in a bubble.
func connect(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(t, err)
	synctest.Wait()
	return conn
}

func newMutex(t *testing.T, conn *zk.Conn, opts ...recipes.Option) *Mutex {
	m, err := NewMutex(conn, "/locks/one", append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(t, err)
	return m
}

func TestMutexIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, srv := t.Context(), zktest.Start(t)
		first, err := newMutex(t, connect(t, srv)).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, first.Err())

		other := newMutex(t, connect(t, srv))
		_, err = other.TryLock(ctx)
		require.ErrorIs(t, err, ErrHeld)

		var second *Hold
		granted := make(chan struct{})
		go func() {
			defer close(granted)
			second, err = other.Lock(ctx)
			require.ErrorIs(t, first.Err(), ErrReleased, "told before another has it")
		}()
		synctest.Wait()
		require.NoError(t, first.Release(ctx))
		require.NoError(t, first.Release(ctx), "again")
		<-granted
		require.NoError(t, err)
		require.Greater(t, second.Token(), first.Token())
		_, err = first.Multi()
		require.ErrorIs(t, err, ErrNotHeld)
		_, err = second.Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(t, err)
		require.NoError(t, second.Release(ctx))
		require.Equal(t, "/\n  locks\n    one container\n  written\n", srv.Tree())
		require.Empty(t, srv.Watches())
	})
}

func TestLockGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		hold, err := newMutex(t, connect(t, srv)).Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err = newMutex(t, connect(t, srv)).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
		synctest.Wait()
		require.Equal(t, 1, strings.Count(srv.Tree(), "_c_"))
		require.NoError(t, hold.Release(t.Context()))
	})
}

// The holder is told before the session can end, and cannot write any more when
// another has the lock.
func TestHolderOutOfReachIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, srv := t.Context(), zktest.Start(t)
		conn := connect(t, srv)
		hold, err := newMutex(t, conn).Lock(ctx)
		require.NoError(t, err)
		srv.Blackhole(zktest.BothWays, conn.SessionID())
		second, err := newMutex(t, connect(t, srv)).Lock(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, hold.Err(), recipes.ErrLeaseExpired)
		srv.Heal(conn.SessionID())
		_, err = hold.Multi()
		require.ErrorIs(t, err, ErrNotHeld)
		require.NoError(t, second.Release(ctx))
		require.NoError(t, hold.Release(ctx))
	})
}

// A grant ends before its znode is deleted: Done is closed before another client can hold
// the lock.
func TestGrantEndsBeforeItsZnode(t *testing.T) {
	play(t, 1, func(w *world) {
		a := w.lock(w.connect())
		h := a.holds()
		ended, leave := false, h.stop
		var first sync.Once // the contender's goroutine calls it, too
		h.stop = func(reason error) {
			first.Do(func() { ended = h.Err() != nil })
			leave(reason)
		}
		a.release()
		require.True(w, ended)
	})
}
