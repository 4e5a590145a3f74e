package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// oneWay is the latency in one direction. A round trip takes twice as long.
const oneWay = 5 * time.Millisecond

// roundTripsOf returns how long f takes, in sequential round trips.
func roundTripsOf(f func()) float64 {
	begin := time.Now()
	f()
	return float64(time.Since(begin)) / float64(2*oneWay)
}

func TestSemaphoreCost(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.contend(2, 1).release() // so that the znode exists
		conn := w.connect()
		s := w.semaphore(conn, 2)
		w.srv.Delay(zktest.BothWays, oneWay)
		var h *Hold
		var err error
		log := w.sent(conn.SessionID(), func() {
			require.Equal(w, 2.0, roundTripsOf(func() { h, err = s.Acquire(w.Context(), 1) }), "a free lease")
		})
		require.NoError(w, err)
		require.Len(w, log, 3, "create, listing and own znode\n%v", log)
		log = w.sent(conn.SessionID(), func() {
			require.Equal(w, 1.0, roundTripsOf(func() { err = h.Release() }))
		})
		require.NoError(w, err)
		require.Len(w, log, 1, "%v", log)

		require.Equal(w, 3.0, roundTripsOf(func() { h, err = s.TryAcquire(w.Context(), 2) }))
		require.NoError(w, err)
		require.Equal(w, 1.0, roundTripsOf(func() { _, err = s.TryAcquire(w.Context(), 1) }))
		require.ErrorIs(w, err, ErrHeld)
		require.NoError(w, h.Release())
		w.clean()
	})
}

// The first waiter lists the queue when it is notified; no other request is in flight.
func TestSemaphoreCost_HandOver(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		w.pass(3 * timeout)
		w.srv.Delay(zktest.BothWays, oneWay)
		w.pass(time.Second + 7*time.Millisecond)
		for _, step := range []struct {
			leaves, comes *call
			requests      int
		}{{a, c, 2}, {b, d, 2}, {c, e, 1}} {
			begin := time.Now()
			log := withoutChecks(w.sent(step.comes.session(), func() {
				step.leaves.release()
				w.pass(time.Second + 7*time.Millisecond)
			}))
			step.comes.holds()
			require.Equal(w, 4*oneWay, step.comes.at.Sub(begin), "the delete, the event, and one round trip")
			require.Len(w, log, step.requests, "the listing, and the word to the next\n%v", log)
		}
		d.release()
		e.release()
		w.clean()
	})
}

// If one release admits several contenders, each waits for the write of its predecessor, and lists
// the queue.
func TestSemaphoreCost_OneReleaseAdmitsSeveral(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		big := w.contend(3, 3)
		all := []*call{w.contend(3, 1), w.contend(3, 1), w.contend(3, 1)}
		w.pass(3 * timeout)
		w.srv.Delay(zktest.BothWays, oneWay)
		w.pass(time.Second + 7*time.Millisecond)
		begin := time.Now()
		big.release()
		w.pass(time.Second)
		for i, c := range all {
			c.holds()
			require.Equal(w, time.Duration(4*(i+1))*oneWay, c.at.Sub(begin))
		}
		for _, c := range all {
			c.release()
		}
		w.clean()
	})
}

// A contender that is admitted soon after it has joined acquires its leases without a delay. If
// the create is too old to prove the session alive, a check is sent.
func TestSemaphoreCost_AdmittedSoonAfterJoining(t *testing.T) {
	for _, age := range []time.Duration{0, timeout / 16, timeout / 10, timeout / 8, timeout / 5, timeout / 2} {
		runSemaphoreTest(t, func(w *harness) {
			a, b := w.contend(1, 1), w.contend(1, 1)
			w.pass(timeout)
			c := w.contend(1, 1)
			w.pass(age)
			w.removeAndWait(b.path())
			w.removeAndWait(a.path())
			w.pass(time.Nanosecond)
			c.release()
		})
	}
}

// A holder without a follower does not write its znode.
func TestSemaphoreCost_NoWriteWithoutFollower(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(1, 1), w.contend(1, 1)
		log := w.sent(b.session(), func() { a.release() })
		require.Zero(w, log.Count(zktest.OpSetData), "%v", log)
		b.release()
	})
}

// While contenders wait, only the first of them renews its lease.
func TestSemaphoreCost_Waiting(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder := w.contend(1, 1)
		first, second := w.contend(1, 1), w.contend(1, 1)
		w.pass(timeout)
		require.Empty(w, w.sent(second.session(), func() { w.pass(10 * timeout) }))
		require.Empty(w, withoutChecks(w.sent(first.session(), func() { w.pass(10 * timeout) })))
		holder.release()
		first.release()
		second.release()
		w.clean()
	})
}

func TestSemaphoreCost_MutexProtocol(t *testing.T) {
	for name, protocol := range otherProtocols {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *harness) {
				w.acquire(w.semaphore(w.connect(), 2, protocol), 1).release() // so that the znodes exist
				s := w.semaphore(w.connect(), 2, protocol)
				w.srv.Delay(zktest.BothWays, oneWay)
				var h *Hold
				var err error
				require.Equal(w, 4.0, roundTripsOf(func() { h, err = s.Acquire(w.Context(), 1) }))
				require.NoError(w, err)
				synctest.Wait()
				w.pass(time.Second)
				require.Equal(w, 1.0, roundTripsOf(func() { err = h.Release() }))
				require.NoError(w, err)
				require.Equal(w, 5.0, roundTripsOf(func() { h, err = s.TryAcquire(w.Context(), 1) }))
				require.NoError(w, err)
				w.pass(time.Second)
				require.NoError(w, h.Release())
				require.LessOrEqual(w, roundTripsOf(func() { h, err = s.Acquire(w.Context(), 2) }), 5.0, "two may share a listing")
				require.NoError(w, err)
				require.Equal(w, 1.0, roundTripsOf(func() { _, err = s.TryAcquire(w.Context(), 1) }))
				require.ErrorIs(w, err, ErrHeld)
				w.pass(time.Second)
				require.NoError(w, h.Release())
				require.ErrorIs(w, s.SetLimit(w.Context(), 3), recipes.ErrInvalid)
			})
		})
	}
}
