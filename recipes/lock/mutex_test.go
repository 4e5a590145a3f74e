package lock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMutex_HandOver(t *testing.T) {
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
			require.ErrorIs(t, first.Err(), recipes.ErrReleased, "the first hold ends before the second begins")
		}()
		synctest.Wait()
		require.NoError(t, first.Release())
		require.NoError(t, first.Release(), "again")
		<-granted
		require.NoError(t, err)
		require.Greater(t, second.Token(), first.Token())
		_, err = first.Multi()
		require.ErrorIs(t, err, recipes.ErrNotHeld)
		_, err = second.Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(t, err)
		require.NoError(t, second.Release())
		require.Equal(t, "/\n  locks container\n    one container\n  written\n", srv.Tree())
		require.Empty(t, srv.Watches())
	})
}

func TestMutex_ContextIsDone(t *testing.T) {
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
		require.NoError(t, hold.Release())
	})
}

// Done is closed before the session can expire, and the former holder cannot write any more when
// another client holds the lock.
func TestMutex_HolderIsCutOff(t *testing.T) {
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
		require.ErrorIs(t, err, recipes.ErrNotHeld)
		require.NoError(t, second.Release())
		require.NoError(t, hold.Release())
	})
}

// CURATOR-376: the znode of a failed attempt exists for a moment, in which other attempts fail.
func TestTrap45_FailedAttemptLeavesNoZnode(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		conn := w.connect()
		m := w.mutex(conn)

		// The lock is held: TryLock creates nothing.
		holder := w.lock(w.connect())
		created := len(w.created())
		_, err := m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		require.Len(w, w.created(), created)
		holder.release()

		// Another contender wins the race: the znode is deleted before TryLock returns.
		var earlier string
		w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			earlier = w.createContender("-lock-")
			return zktest.Pass(q)
		})
		_, err = m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		w.requireContenders(earlier)
		w.remove(earlier)
		h, err := m.TryLock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Release())
	})
}
