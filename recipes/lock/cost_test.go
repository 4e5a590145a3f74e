package lock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// roundTrip is the duration of each request in these tests. longTimeout is a session timeout that is so long
// that checks of the lease do not affect the measured costs.
const (
	roundTrip   = time.Second
	longTimeout = 40 * time.Second
)

// runWithLatency runs f in a test in which only the requests of connections of connectSlowly take time,
// roundTrip each. So the elapsed time shows the number of sequential round trips.
func runWithLatency(t *testing.T, f func(w *harness)) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		f(w)
		w.srv.Heal()
	})
}

// connectSlowly opens a session. After that, each request of the session takes roundTrip.
func (w *harness) connectSlowly() *zk.Conn {
	conn := bubble.ConnectFrom(w, w.ensemble, 0, longTimeout)
	w.srv.Delay(zktest.BothWays, roundTrip/2, conn.SessionID())
	return conn
}

// long is the option that sets the session timeout to longTimeout.
var long = recipes.WithSessionTimeout(longTimeout)

// step is an operation with its expected cost.
type step struct {
	trips, requests int // the expected numbers of round trips and of requests, for requireCost
	do              func() error
}

// keptHold stores a hold that one step acquires, for the following steps of a test.
type keptHold struct{ *Hold }

// takeHold returns a function that acquires a hold.
func (k *keptHold) takeHold(w *harness, lock func(context.Context) (*Hold, error)) func() error {
	return func() (err error) {
		k.Hold, err = lock(w.Context())
		return err
	}
}

func (k *keptHold) release() error { return k.Release() }

// requireErrHeld returns a function that calls lock, which must return ErrHeld.
func (w *harness) requireErrHeld(lock func(context.Context) (*Hold, error)) func() error {
	return func() error {
		_, err := lock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		return nil
	}
}

// TestCost_UncontendedLocksSendDocumentedRequests checks that the operations on a lock that no other client
// uses send exactly the documented requests.
func TestCost_UncontendedLocksSendDocumentedRequests(t *testing.T) {
	for name, steps := range map[string]func(w *harness, conn *zk.Conn, k *keptHold) []step{
		"Mutex": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			m := w.mutex(conn, long)
			return []step{
				// The create is followed by concurrent requests: the list and the read of the contender's znode.
				{2, 3, k.takeHold(w, m.Lock)},
				{1, 1, func() error {
					_, err := k.Multi(&zk.SetDataRequest{Path: "/locks", Version: -1})
					return err
				}},
				{1, 1, k.release},
				{1, 1, k.takeHold(w, m.Lock)}, // the create and the write of the lock's node, in one transaction
				{0, 0, func() error {
					require.NotZero(w, k.Token())
					checks := w.srv.Log().Session(conn.SessionID()).Filter(func(e zktest.Entry) bool { return e.Ops == 1 })
					require.Empty(w, checks, "checks of the lease")
					return nil
				}},
				{1, 1, k.release},
			}
		},
		// The first lock with an ACL on a connection also reads the ACL of the lock's znode, which takes one
		// more round trip.
		"Mutex with an ACL that denies something": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			m := w.mutex(conn, long, recipes.WithACL(zk.WorldACL(zk.PermAll&^zk.PermAdmin)))
			return []step{{3, 4, k.takeHold(w, m.Lock)}, {1, 1, k.release}, {1, 1, k.takeHold(w, m.Lock)}, {1, 1, k.release}}
		},
		"Mutex with a lock-delay": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			m := w.mutex(conn, long, WithLockDelay(time.Minute))
			// The lock-delay adds a listing of markers and the transaction that creates the marker.
			return []step{{4, 5, k.takeHold(w, m.Lock)}, {1, 1, k.release}}
		},
		"Single": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			s, err := NewSingle(conn, "/locks/single", []byte("owner"), long)
			require.NoError(w, err)
			write := func() error {
				_, err := k.Multi(&zk.SetDataRequest{Path: "/locks", Version: -1})
				return err
			}
			return []step{
				{2, 2, k.takeHold(w, s.Lock)}, // the create of the znode, and the read that sets the watch
				{2, 2, write},                 // the first transaction on a connection also creates the record
				{1, 1, write},
				{1, 1, w.requireErrHeld(s.TryLock)},
				// The release sends a Sync, a read and the deletion.
				{3, 3, func() error { return bubble.Repeated(k.release) }},
			}
		},
		"RWMutex, writing": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			m := w.rw(conn, long)
			var x *WriteHold
			return []step{
				{2, 3, func() (err error) {
					x, err = m.Lock(w.Context())
					return err
				}},
				{1, anyNumber, func() error { // the transaction changes nothing, so it looks like a check of the lease
					_, err := x.Multi()
					return err
				}},
				// Downgrade sends a transaction, and a read that sets the watch on the new znode.
				{2, 2, func() error { return bubble.Repeated(x.Downgrade) }},
				{1, 1, func() error { return x.Release() }},
			}
		},
		"RWMutex, reading": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			w.write(w.operator).downgrade()
			m := w.rw(conn, long)
			return []step{{2, 3, k.takeHold(w, m.RLock)}, {1, 1, w.requireErrHeld(m.Writing().part().try)}, {1, 1, k.release}}
		},
		"Semaphore": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			s := w.semaphore(conn, 2, long)
			acquire := func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, 1) }
			return []step{
				// The create is followed by concurrent requests: the listing and the read of the contender's znode.
				{2, 3, k.takeHold(w, acquire)},
				{1, 1, k.release},
				{3, 4, k.takeHold(w, func(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, 2) })},
				{1, 1, w.requireErrHeld(func(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, 1) })},
				{1, 1, k.release},
			}
		},
		"MultiLock": func(w *harness, conn *zk.Conn, k *keptHold) []step {
			var parts []Part
			for _, name := range []string{"a", "b", "c"} {
				w.create("/locks/" + name)
				parts = append(parts, w.mutexAt(conn, "/locks/"+name, long))
			}
			m, err := NewMultiLock(parts...)
			require.NoError(w, err)
			var h *MultiHold
			return []step{
				{6, anyNumber, func() (err error) {
					h, err = m.Lock(w.Context())
					return err
				}},
				{1, anyNumber, func() error {
					_, err := h.Multi()
					return err
				}},
				{1, 3, func() error { return h.Release() }},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			runWithLatency(t, func(w *harness) {
				conn := w.connectSlowly()
				for _, s := range steps(w, conn, &keptHold{}) {
					w.requireCost(conn, s.trips, s.requests, func() { require.NoError(w, s.do()) })
				}
			})
		})
	}
}

// TestCost_OtherSemaphoresTakeDocumentedRoundTrips checks that a semaphore with the protocol of Curator or
// kazoo takes no more round trips than documented.
func TestCost_OtherSemaphoresTakeDocumentedRoundTrips(t *testing.T) {
	for name, layout := range otherLayouts {
		t.Run(name, func(t *testing.T) {
			runWithLatency(t, func(w *harness) {
				w.acquire(w.semaphore(w.operator, 2, layout), 1).release() // creates the znodes of the semaphore
				conn, k := w.connectSlowly(), &keptHold{}
				s := w.semaphore(conn, 2, layout, long)
				acquire := func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, 1) }
				for _, step := range []step{
					{4, anyNumber, k.takeHold(w, acquire)},
					{1, anyNumber, k.release},
					{5, anyNumber, k.takeHold(w, func(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, 1) })},
				} {
					w.requireCost(conn, step.trips, step.requests, func() { require.NoError(w, step.do()) })
					w.passTime(4 * roundTrip) // the mutex is released in the background
				}
				require.NoError(w, k.release())
				begin := time.Now()
				h, err := s.Acquire(w.Context(), 2)
				require.NoError(w, err)
				require.LessOrEqual(w, time.Since(begin), 5*roundTrip, "two contenders for leases may share a listing")
				w.requireCost(conn, 1, anyNumber, func() {
					_, err = s.TryAcquire(w.Context(), 1)
					require.ErrorIs(w, err, ErrHeld)
				})
				w.passTime(4 * roundTrip)
				require.NoError(w, h.Release())
				require.ErrorIs(w, s.SetLimit(w.Context(), 3), recipes.ErrInvalid)
			})
		})
	}
}

// TestCost_ReleaseRequestedSendsOneRequest checks that the first call of ReleaseRequested sends one request,
// and that the release of the hold still sends only one.
func TestCost_ReleaseRequestedSendsOneRequest(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		h := w.lock(w.operator).requireHolds()
		require.Len(w, w.requestsDuring(w.operator.SessionID(), func() { h.ReleaseRequested() }), 1)
		require.Len(w, w.requestsDuring(w.operator.SessionID(), func() { require.NoError(w, h.Release()) }), 1)
	})
}

// requireCost asserts that f takes the stated number of sequential round trips, and that the session of conn
// sends the stated number of requests in this time, apart from checks of the lease. It does not compare the
// number of requests if requests is anyNumber.
func (w *harness) requireCost(conn *zk.Conn, trips, requests int, f func()) {
	w.Helper()
	begin := len(w.srv.Log())
	w.requireElapsed(time.Duration(trips)*roundTrip, f)
	if requests != anyNumber {
		require.Len(w, w.sentSince(begin, conn), requests, "%v", w.sentSince(begin, conn))
	}
}

// anyNumber means that requireCost does not compare the number of requests.
const anyNumber = -1

// sentSince returns the requests that the session of conn has sent since the log had begin entries, without
// checks of the lease.
func (w *harness) sentSince(begin int, conn *zk.Conn) zktest.Log {
	return w.srv.Log()[begin:].Session(conn.SessionID()).Requests().Filter(func(e zktest.Entry) bool {
		return e.Op != zktest.OpMulti || e.Ops != 1
	})
}

// TestCost_ContendedMutexSendsDocumentedRequests checks that a contender that waits for a mutex, and the
// hand-over of the mutex, send no more requests than documented.
func TestCost_ContendedMutexSendsDocumentedRequests(t *testing.T) {
	runWithLatency(t, func(w *harness) {
		holder := w.lock(w.operator)
		var conns []*zk.Conn
		var waiting []*call
		for range 3 {
			conn := w.connectSlowly()
			conns = append(conns, conn)
			begin := time.Now()
			a := w.startCall(conn, w.mutex(conn, long).Lock)
			w.passTime(3 * roundTrip)
			waiting = append(waiting, a)
			sent := w.sentSince(0, conn)
			require.Len(w, sent, 4, "%v", sent)
			last := sent[len(sent)-1]
			require.Equal(w, zktest.OpGetData, last.Op)
			require.Equal(w, begin.Add(5*roundTrip/2), last.Time, "the watch is set in the third round trip")
		}
		// The direct follower joined while the holder was the only other contender: the hand-over takes the
		// deletion of the holder's znode and its event.
		begin := len(w.srv.Log())
		released := time.Now()
		w.srv.Delay(zktest.BothWays, roundTrip/2, w.operator.SessionID())
		require.NoError(w, holder.hold.Release())
		w.passTime(0)
		require.Equal(w, released.Add(roundTrip), waiting[0].at)
		require.Empty(w, w.sentSince(begin, conns[0]), "the follower sends no request")

		// The next follower joined behind two contenders: its hand-over also takes a listing.
		begin = len(w.srv.Log())
		released = time.Now()
		require.NoError(w, waiting[0].hold.Release())
		w.passTime(roundTrip)
		require.Equal(w, released.Add(2*roundTrip), waiting[1].at)
		require.Len(w, w.sentSince(begin, conns[1]), 1)
		waiting[2].requireWaits()
	})
}

// TestCost_ClientsThatTakeTurnsJoinWithoutListing checks that clients that acquire a mutex in turns predict
// their predecessors, and so do not list the queue when they join.
func TestCost_ClientsThatTakeTurnsJoinWithoutListing(t *testing.T) {
	runWithLatency(t, func(w *harness) {
		const clients, rounds = 4, 5
		var conns [clients]*zk.Conn
		var mutexes [clients]*Mutex
		var calls [clients]*call
		for i := range clients {
			conns[i] = w.connectSlowly()
			mutexes[i] = w.mutex(conns[i], long)
			calls[i] = w.startCall(conns[i], mutexes[i].Lock)
			w.passTime(3 * roundTrip)
		}
		for round := range rounds {
			for i := range clients {
				calls[i].requireHolds()
				calls[i].release()
				begin := len(w.srv.Log())
				calls[i] = w.startCall(conns[i], mutexes[i].Lock)
				w.passTime(4 * roundTrip)
				if sent := w.sentSince(begin, conns[i]); round > 2 {
					require.Equal(w, zktest.OpMulti, sent[0].Op, "%v", sent)
					require.Equal(w, zktest.OpGetData, sent[1].Op, "%v", sent)
				}
			}
		}
		for i := range clients {
			calls[i].release()
			w.passTime(4 * roundTrip)
		}
	})
}

// TestCost_HandOverOnOneConnectionTakesOneRoundTrip checks that a hand-over between goroutines that share a
// connection takes one round trip, as between connections.
func TestCost_HandOverOnOneConnectionTakesOneRoundTrip(t *testing.T) {
	runWithLatency(t, func(w *harness) {
		conn := w.connectSlowly()
		m := w.mutex(conn, long)
		first := w.startCall(conn, m.Lock)
		w.passTime(2 * roundTrip)
		second := w.startCall(conn, m.Lock)
		w.passTime(3 * roundTrip)
		w.requireCost(conn, 1, anyNumber, func() {
			first.release()
			second.requireHolds()
		})
		second.release()
	})
}

// TestRWMutex_ReleaseWakesOnlyNextContenders checks that the release of a writer wakes only the readers that
// follow directly, or only the next writer, and that the releases of readers wake no contender but the next
// writer.
// Scenario 52 of docs/traps.md.
func TestRWMutex_ReleaseWakesOnlyNextContenders(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.write(w.connect())
		readers := []*call{w.read(w.connect()), w.read(w.connect()), w.read(w.connect())}
		second := w.write(w.connect())
		behind := w.read(w.connect())
		last := w.write(w.connect())

		w.srv.ResetLog()
		path := first.requireHolds().Path()
		first.release()
		woken := []int64{first.conn.SessionID()}
		for _, r := range readers {
			r.requireHolds()
			woken = append(woken, r.conn.SessionID())
		}
		require.ElementsMatch(w, woken, w.srv.Log().Woken(path))
		second.requireWaits()

		// Only the release of the last reader wakes another contender.
		w.srv.ResetLog()
		for i, r := range readers {
			path := r.requireHolds().Path()
			r.release()
			want := []int64{r.conn.SessionID()}
			if i == len(readers)-1 {
				want = append(want, second.conn.SessionID())
			}
			require.ElementsMatch(w, want, w.srv.Log().Woken(path))
		}
		path = second.requireHolds().Path()
		second.release()
		require.ElementsMatch(w, []int64{second.conn.SessionID(), behind.conn.SessionID()}, w.srv.Log().Woken(path))
		behind.requireHolds()
		last.requireWaits()
		behind.release()
		last.requireHolds()
	})
}

// TestCost_PositionSendsOneRequest checks that Position sends exactly one request.
func TestCost_PositionSendsOneRequest(t *testing.T) {
	runWithLatency(t, func(w *harness) {
		holder := w.lock(w.operator)
		conn := w.connectSlowly()
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.mutex(conn, long).Join(ctx)
		w.passTime(3 * roundTrip)
		w.requireCost(conn, 1, 1, func() {
			ahead, err := waiter.Position(w.Context())
			require.NoError(w, err)
			require.Equal(w, 1, ahead)
		})
		cancel()
		_, err := waiter.Wait()
		require.ErrorIs(w, err, context.Canceled)
		w.passTime(2 * roundTrip)
		holder.release()
	})
}

// oneWay is the latency in one direction. A round trip takes twice as long.
const oneWay = 5 * time.Millisecond

// TestSemaphoreCost_HandOverTakesTwoRoundTrips checks that a hand-over takes two round trips: one for the
// deletion of the holder's znode and its event, and one for the listing by the first waiter.
func TestSemaphoreCost_HandOverTakesTwoRoundTrips(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		w.passTime(3 * timeout)
		w.srv.Delay(zktest.BothWays, oneWay)
		w.passTime(time.Second + 7*time.Millisecond)
		for _, step := range []struct {
			leaves, comes *call
			requests      int
		}{{a, c, 2}, {b, d, 2}, {c, e, 1}} {
			begin := time.Now()
			log := withoutChecks(w.requestsDuring(step.comes.session(), func() {
				step.leaves.release()
				w.passTime(time.Second + 7*time.Millisecond)
			}))
			step.comes.requireHolds()
			require.Equal(w, 4*oneWay, step.comes.at.Sub(begin), "the delete, the event, and one round trip")
			require.Len(w, log, step.requests, "the listing, and the write that wakes the next waiter\n%v", log)
		}
	})
}

// TestSemaphoreCost_EachAdmissionTakesTwoRoundTrips checks that each admission takes two round trips if one
// release admits several contenders: each of them waits until its predecessor has written its znode, and then
// lists the queue.
func TestSemaphoreCost_EachAdmissionTakesTwoRoundTrips(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		big := w.contend(3, 3)
		var all []*call
		for range 5 {
			all = append(all, w.contend(3, 1))
		}
		w.passTime(3 * timeout)
		w.srv.Delay(zktest.BothWays, oneWay)
		w.passTime(time.Second + 7*time.Millisecond)
		begin := time.Now()
		big.release()
		w.passTime(time.Second)
		for i, c := range all[:3] {
			c.requireHolds()
			require.Equal(w, time.Duration(4*(i+1))*oneWay, c.at.Sub(begin))
		}
		w.requireWaiting(all[3:]...)
	})
}

// TestSemaphoreCost_NewContenderIsAdmittedWithoutDelay checks that a contender is granted its leases without a
// delay, even if the reply to its create is too old to prove that its session is alive, so that the contender
// must send a check first.
func TestSemaphoreCost_NewContenderIsAdmittedWithoutDelay(t *testing.T) {
	for _, age := range []time.Duration{0, timeout / 16, timeout / 10, timeout / 8, timeout / 5, timeout / 2} {
		runTest(t, 1, func(w *harness) {
			a, b := w.contend(1, 1), w.contend(1, 1)
			w.passTime(timeout)
			c := w.contend(1, 1)
			w.passTime(age)
			w.removeAndWait(b.path())
			w.removeAndWait(a.path())
			w.passTime(time.Nanosecond)
			c.release()
		})
	}
}

// TestSemaphoreCost_OnlyFirstWaiterSendsChecks checks that only the first of the waiting contenders sends
// checks of its session, and that a holder without a follower does not write its znode.
func TestSemaphoreCost_OnlyFirstWaiterSendsChecks(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder := w.contend(1, 1)
		first, second := w.contend(1, 1), w.contend(1, 1)
		w.passTime(timeout)
		require.Empty(w, w.requestsDuring(second.session(), func() { w.passTime(10 * timeout) }))
		require.Empty(w, withoutChecks(w.requestsDuring(first.session(), func() { w.passTime(10 * timeout) })))
		holder.release()
		second.cancel()
		w.passTime(0)
		last := w.contend(1, 1)
		log := w.requestsDuring(last.session(), func() { first.release() })
		require.Zero(w, log.Count(zktest.OpSetData), "%v", log)
		last.requireHolds()
	})
}
