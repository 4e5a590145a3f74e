package lock

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

func TestSemaphoreGivesUpToTheLimit(t *testing.T) {
	playSem(t, func(w *semWorld) {
		a, b, c, d := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		w.holding(a, b)
		w.waiting(c, d)
		b.release()
		c.holds()
		w.waiting(d)
		a.release()
		d.holds()
		require.Greater(w, d.holds().Token(), c.holds().Token())
		_, err := d.holds().Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(w, err)
		old := c.holds()
		c.release()
		require.ErrorIs(w, old.Err(), ErrReleased)
		_, err = old.Multi()
		require.ErrorIs(w, err, ErrNotHeld)
		require.NoError(w, old.Release(w.Context()), "again")
		d.release()
		w.clean()
	})
}

// The second leaves before the first: it is not the (rank - limit)-th predecessor
// whose departure counts.
func TestSemaphoreHoldersLeaveInAnyOrder(t *testing.T) {
	playSem(t, func(w *semWorld) {
		var all []*semContender
		for range 8 {
			all = append(all, w.contend(3, 1))
		}
		for _, i := range []int{1, 2, 3, 0, 4, 6} { // who leaves
			w.holding(all[i])
			all[i].release()
		}
		w.holding(all[5], all[7])
		all[5].release()
		all[7].release()
		w.clean()
	})
}

func TestSemaphoreWeights(t *testing.T) {
	playSem(t, func(w *semWorld) {
		a, b := w.contend(5, 3), w.contend(5, 2)
		w.holding(a, b)
		big, small := w.contend(5, 4), w.contend(5, 1)
		w.waiting(big, small)
		b.release()
		w.waiting(big, small) // small would fit, and does not overtake
		a.release()
		w.holding(big, small)
		last := w.contend(5, 5)
		w.waiting(last)
		small.release()
		w.waiting(last)
		big.release()
		last.release()
		w.clean()
	})
}

// One departure makes room for several, who are let in one after another.
func TestSemaphoreOneReleaseLetsInSeveral(t *testing.T) {
	playSem(t, func(w *semWorld) {
		big := w.contend(4, 4)
		var all []*semContender
		for range 6 {
			all = append(all, w.contend(4, 1))
		}
		w.waiting(all...)
		big.release()
		w.holding(all[:4]...)
		w.waiting(all[4:]...)
		for _, c := range all {
			c.release()
		}
		w.clean()
	})
}

func TestSemaphoreOverLimit(t *testing.T) {
	playSem(t, func(w *semWorld) {
		c := w.contend(2, 3)
		c.fails(ErrOverLimit)
		w.clean()
		s := w.semaphore(w.connect(), 2)
		_, err := s.TryAcquire(w.Context(), 3)
		require.ErrorIs(w, err, ErrOverLimit)
		for _, n := range []int{0, -1, 1_000_000_000} {
			_, err = s.Acquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalidOption)
			_, err = s.TryAcquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalidOption)
			require.ErrorIs(w, s.SetLimit(w.Context(), n), recipes.ErrInvalidOption)
			_, err = NewSemaphore(s.setup.Conn, semPath, n)
			require.ErrorIs(w, err, recipes.ErrInvalidOption)
		}
	})
}

func TestSemaphoreInvalid(t *testing.T) {
	playSem(t, func(w *semWorld) {
		_, err := NewSemaphore(nil, semPath, 1)
		require.ErrorIs(w, err, recipes.ErrNilConn)
		_, err = NewSemaphore(w.operator, "sem", 1)
		require.ErrorIs(w, err, recipes.ErrInvalidPath)
		_, err = NewSemaphore(w.operator, semPath, 1, recipes.WithACL(zk.WorldACL(zk.PermAll&^zk.PermWrite)))
		require.ErrorIs(w, err, recipes.ErrInvalidOption, "nobody could tell a follower")
		_, err = NewCuratorSemaphore(w.operator, semPath, 1, recipes.WithLayout(recipes.Kazoo))
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		_, err = NewCuratorSemaphore(w.operator, semPath, 0)
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
	})
}

// Whoever does not want to wait learns from a listing that it would have to.
func TestSemaphoreTryAcquire(t *testing.T) {
	playSem(t, func(w *semWorld) {
		conn := w.connect()
		s := w.semaphore(conn, 3)
		first, err := s.TryAcquire(w.Context(), 2)
		require.NoError(w, err)
		log := w.sent(conn.SessionID(), func() {
			_, err = s.TryAcquire(w.Context(), 2)
			require.ErrorIs(w, err, ErrHeld)
		})
		require.Len(w, log, 1, "%v", log)
		second, err := s.TryAcquire(w.Context(), 1)
		require.NoError(w, err)
		require.NoError(w, second.Release(w.Context()))
		// Somebody waits: a lease is free, but not for others.
		waiter := w.contend(3, 2)
		waiter.waits()
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		require.NoError(w, first.Release(w.Context()))
		synctest.Wait()
		waiter.release()
		w.clean()
	})
}

// A waiter of any place in line gives up: those behind it are served, and it leaves
// nothing behind.
func TestSemaphoreGivingUp(t *testing.T) {
	for gone := range 3 {
		playSem(t, func(w *semWorld) {
			holder := w.contend(1, 1)
			line := []*semContender{w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)}
			line[gone].cancel()
			synctest.Wait()
			line[gone].fails(context.Canceled)
			require.Len(w, w.leases(), 3)
			holder.release()
			for i, c := range line {
				if i != gone {
					c.release()
				}
			}
			w.clean()
		})
	}
}

// A big request that has kept others waiting gives up, and they are let in.
func TestSemaphoreGivingUpMakesRoom(t *testing.T) {
	playSem(t, func(w *semWorld) {
		holder, big := w.contend(4, 2), w.contend(4, 4)
		a, b, c := w.contend(4, 1), w.contend(4, 1), w.contend(4, 1)
		w.waiting(big, a, b, c)
		big.cancel()
		synctest.Wait()
		w.holding(a, b)
		c.waits()
		holder.release()
		for _, x := range []*semContender{a, b, c} {
			x.release()
		}
		w.clean()
	})
}

func TestSemaphoreAcquireGivesUpWithItsContext(t *testing.T) {
	playSem(t, func(w *semWorld) {
		holder := w.contend(1, 1)
		waiter := w.contend(1, 1)
		begin := time.Now()
		w.srv.Blackhole(zktest.ToServer, waiter.session()) // its removal will take a while
		waiter.cancel()
		synctest.Wait()
		over, _, _ := waiter.result()
		require.True(w, over, "at once")
		require.Equal(w, begin, time.Now())
		w.srv.Heal()
		w.pass(semTimeout)
		require.Len(w, w.leases(), 1)
		holder.release()
		w.clean()
	})
}
