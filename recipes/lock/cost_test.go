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

// roundTrip is the round trip time of these tests. The session timeout is so long that checks of
// the lease do not matter.
const (
	roundTrip   = time.Second
	longTimeout = 40 * time.Second
)

// runWithLatency runs f in a test in which each request takes roundTrip, and everything else takes
// no time. So the elapsed time shows the number of sequential round trips.
func runWithLatency(t *testing.T, f func(w *latencyHarness)) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		s := &latencyHarness{w}
		f(s)
		w.srv.Heal()
	})
}

type latencyHarness struct{ *harness }

// connect opens a session, whose requests take roundTrip from then on.
func (w *latencyHarness) connect() *zk.Conn {
	conn := bubble.ConnectFrom(w, w.ensemble, 0, longTimeout)
	w.srv.Delay(zktest.BothWays, roundTrip/2, conn.SessionID())
	return conn
}

func (w *latencyHarness) long() Option { return recipes.WithSessionTimeout(longTimeout) }

// requireCost asserts the number of sequential round trips of f, and, unless it is anyNumber, the
// number of requests that the session sends in that time, without checks of the lease.
func (w *latencyHarness) requireCost(conn *zk.Conn, trips, requests int, f func()) {
	w.Helper()
	begin := len(w.srv.Log())
	w.elapsed(time.Duration(trips)*roundTrip, f)
	if requests != anyNumber {
		require.Len(w, w.sent(begin, conn), requests, "%v", w.sent(begin, conn))
	}
}

const anyNumber = -1

// sent returns the requests that a session has sent, without checks of the lease.
func (w *latencyHarness) sent(begin int, conn *zk.Conn) zktest.Log {
	return w.srv.Log()[begin:].Session(conn.SessionID()).Requests().Filter(func(e zktest.Entry) bool {
		return e.Op != zktest.OpMulti || e.Ops != 1
	})
}

func TestCost_FreeMutex(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		m := w.mutex(conn, w.long())
		var h *Hold
		w.requireCost(conn, 2, 3, func() { // the create; then concurrently the list and the read of the contender's znode
			var err error
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
			require.NotZero(w, h.Token())
			require.NoError(w, h.Err())
		})
		w.requireCost(conn, 1, 1, func() {
			_, err := h.Multi(&zk.SetDataRequest{Path: "/locks", Version: -1})
			require.NoError(w, err)
		})
		w.requireCost(conn, 1, 1, func() { require.NoError(w, h.Release()) })
		w.requireCost(conn, 1, 1, func() { // the create and the write of the lock's node, in one transaction
			var err error
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
			require.NotZero(w, h.Token())
		})
		w.requireCost(conn, 1, 1, func() { require.NoError(w, h.Release()) })
		require.Zero(w, w.srv.Log().Session(conn.SessionID()).Filter(func(e zktest.Entry) bool { return e.Ops == 1 }), "no check of the lease is sent")
	})
}

// With an ACL that denies something, the first lock on a connection also reads the ACL of the lock's
// node.
func TestCost_MutexWithACL(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		m := w.mutex(conn, w.long(), recipes.WithACL(zk.WorldACL(zk.PermAll&^zk.PermAdmin)))
		for _, want := range []struct{ trips, requests int }{{3, 4}, {1, 1}} {
			var h *Hold
			w.requireCost(conn, want.trips, want.requests, func() {
				var err error
				h, err = m.Lock(w.Context())
				require.NoError(w, err)
			})
			w.requireCost(conn, 1, 1, func() { require.NoError(w, h.Release()) })
		}
	})
}

func TestCost_TryLockOfHeldMutex(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		holder := w.lock(w.operator)
		conn := w.connect()
		w.requireCost(conn, 1, 1, func() {
			_, err := w.mutex(conn, w.long()).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
		})
		require.Len(w, w.created(), 1, "TryLock creates nothing")
		holder.release()
	})
}

func TestCost_ContendedMutex(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		holder := w.lock(w.operator)
		var conns []*zk.Conn
		var waiting []*call
		for range 3 {
			conn := w.connect()
			conns = append(conns, conn)
			begin := time.Now()
			a := w.startCall(conn, w.mutex(conn, w.long()).Lock)
			w.pass(3 * roundTrip)
			waiting = append(waiting, a)
			sent := w.sent(0, conn)
			require.Len(w, sent, 4, "%v", sent)
			last := sent[len(sent)-1]
			require.Equal(w, zktest.OpGetData, last.Op)
			require.Equal(w, begin.Add(5*roundTrip/2), last.Time, "the watch is set in the third round trip")
		}
		// The direct follower joined while the holder was the only other contender: the hand-over
		// takes the deletion and its event.
		begin := len(w.srv.Log())
		released := time.Now()
		w.srv.Delay(zktest.BothWays, roundTrip/2, w.operator.SessionID())
		require.NoError(w, holder.hold.Release())
		w.pass(0)
		require.Equal(w, released.Add(roundTrip), waiting[0].at)
		require.Empty(w, w.sent(begin, conns[0]), "the follower sends no request")

		// The next follower joined farther back: its hand-over also takes a listing.
		begin = len(w.srv.Log())
		released = time.Now()
		require.NoError(w, waiting[0].hold.Release())
		w.pass(roundTrip)
		require.Equal(w, released.Add(2*roundTrip), waiting[1].at)
		require.Len(w, w.sent(begin, conns[1]), 1)
		waiting[2].waits()
	})
}

// Between goroutines that share a connection, a hand-over is as fast as between connections.
func TestCost_HandOverOnOneConnection(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		m := w.mutex(conn, w.long())
		first := w.startCall(conn, m.Lock)
		w.pass(2 * roundTrip)
		second := w.startCall(conn, m.Lock)
		w.pass(3 * roundTrip)
		w.requireCost(conn, 1, anyNumber, func() {
			first.release()
			second.holds()
		})
		second.release()
	})
}

// A release wakes only the direct follower.
func TestCost_ReleaseWakesDirectFollower(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var line []*call
		for range 6 {
			line = append(line, w.lock(w.connect()))
		}
		for i, a := range line {
			w.srv.ResetLog()
			path := a.holds().Path()
			a.release()
			woken := []int64{a.conn.SessionID()} // by the watch on its znode
			if i+1 < len(line) {
				woken = append(woken, line[i+1].conn.SessionID())
			}
			require.ElementsMatch(w, woken, w.srv.Log().Woken(path))
			for _, e := range w.srv.Log() {
				if e.Op != zktest.OpPing && e.Ops != 1 { // not a check of the lease
					require.Contains(w, woken, e.Session)
				}
			}
		}
	})
}

func TestCost_RWMutex(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		m := w.rw(conn, w.long())
		var h *WriteHold
		var err error
		w.requireCost(conn, 2, 3, func() {
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
		})
		w.requireCost(conn, 1, anyNumber, func() { // the transaction changes nothing, so it looks like a check of the lease
			_, err := h.Multi()
			require.NoError(w, err)
		})
		// The transaction, and the read that sets the watch on the new znode.
		w.requireCost(conn, 2, 2, func() { require.NoError(w, bubble.Repeated(h.Downgrade)) })
		other := w.connect()
		var r *Hold
		w.requireCost(other, 2, 3, func() {
			r, err = w.rw(other, w.long()).RLock(w.Context())
			require.NoError(w, err)
		})
		w.requireCost(other, 1, 1, func() {
			_, err := w.rw(other, w.long()).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
		})
		w.requireCost(other, 1, 1, func() { require.NoError(w, r.Release()) })
		w.requireCost(conn, 1, 1, func() { require.NoError(w, h.Release()) })
	})
}

// The release of a writer wakes the readers that directly follow, or one writer.
func TestCost_WriterReleaseWakesReaders(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.write(w.connect())
		readers := []*call{w.read(w.connect()), w.read(w.connect()), w.read(w.connect())}
		second := w.write(w.connect())
		behind := w.read(w.connect())
		last := w.write(w.connect())

		w.srv.ResetLog()
		path := first.holds().Path()
		first.release()
		woken := []int64{first.conn.SessionID()}
		for _, r := range readers {
			r.holds()
			woken = append(woken, r.conn.SessionID())
		}
		require.ElementsMatch(w, woken, w.srv.Log().Woken(path))
		second.waits()

		// Only the release of the last reader wakes another contender.
		w.srv.ResetLog()
		for i, r := range readers {
			path := r.holds().Path()
			r.release()
			want := []int64{r.conn.SessionID()}
			if i == len(readers)-1 {
				want = append(want, second.conn.SessionID())
			}
			require.ElementsMatch(w, want, w.srv.Log().Woken(path))
		}
		path = second.holds().Path()
		second.release()
		require.ElementsMatch(w, []int64{second.conn.SessionID(), behind.conn.SessionID()}, w.srv.Log().Woken(path))
		behind.holds()
		last.waits()
		behind.release()
		last.holds()
	})
}

func TestCost_Revoked(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		h := w.lock(conn).holds()
		w.srv.ResetLog()
		h.ReleaseRequested()
		w.pass(0)
		require.Len(w, w.srv.Log().Session(conn.SessionID()).Requests(), 1)
		w.srv.ResetLog()
		require.NoError(w, h.Release())
		w.pass(0)
		require.Len(w, w.srv.Log().Session(conn.SessionID()).Requests(), 1)
	})
}

func TestCost_LockDelay(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		var h *Hold
		w.requireCost(conn, 4, 5, func() { // in addition a listing and a transaction
			var err error
			h, err = w.mutex(conn, w.long(), WithLockDelay(time.Minute)).Lock(w.Context())
			require.NoError(w, err)
		})
		w.requireCost(conn, 1, 1, func() { require.NoError(w, h.Release()) })
	})
}

func TestCost_MultiLock(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		conn := w.connect()
		var parts []Part
		for _, path := range []string{"/locks/a", "/locks/b", "/locks/c"} {
			w.create(path)
			m, err := NewMutex(conn, path, w.long())
			require.NoError(w, err)
			parts = append(parts, m)
		}
		m, err := NewMultiLock(parts...)
		require.NoError(w, err)
		var h *MultiHold
		w.requireCost(conn, 6, anyNumber, func() {
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
		})
		w.requireCost(conn, 1, anyNumber, func() { // the transaction changes nothing, so it looks like a check of the lease
			_, err := h.Multi()
			require.NoError(w, err)
		})
		w.requireCost(conn, 1, 3, func() { require.NoError(w, h.Release()) })
	})
}

// Position sends one request.
func TestCost_Position(t *testing.T) {
	runWithLatency(t, func(w *latencyHarness) {
		holder := w.lock(w.operator)
		conn := w.connect()
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.mutex(conn, w.long()).Join(ctx)
		w.pass(3 * roundTrip)
		w.requireCost(conn, 1, 1, func() {
			ahead, err := waiter.Position(w.Context())
			require.NoError(w, err)
			require.Equal(w, 1, ahead)
		})
		cancel()
		_, err := waiter.Wait()
		require.ErrorIs(w, err, context.Canceled)
		w.pass(2 * roundTrip)
		holder.release()
	})
}
