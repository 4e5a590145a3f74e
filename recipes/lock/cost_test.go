package lock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// roundTrip is that of the world in which costs are measured. Sessions live so long
// that proofs are not the matter.
const (
	roundTrip   = time.Second
	longTimeout = 40 * time.Second
)

// playSlow runs f where a request takes roundTrip and nothing else takes any time: so
// the time that passes tells how many requests were waited for one after another.
func playSlow(t *testing.T, f func(w *slow)) {
	play(t, 1, func(w *harness) {
		w.dirs()
		s := &slow{w}
		f(s)
		w.srv.Heal()
	})
}

type slow struct{ *harness }

// connect opens a session that is slow once it is there.
func (w *slow) connect() *zk.Conn {
	conn, _, err := w.ensemble.Connect(longTimeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(w, err)
	w.pass(0)
	w.srv.Delay(zktest.BothWays, roundTrip/2, conn.SessionID())
	return conn
}

func (w *slow) long() recipes.Option { return recipes.WithSessionTimeout(longTimeout) }

// costs asserts how many round trips f waits for, and how many requests the session
// sends meanwhile, without the ones that prove its life; some is not asserted.
func (w *slow) costs(conn *zk.Conn, trips, requests int, f func()) {
	w.Helper()
	begin := len(w.srv.Log())
	w.elapsed(time.Duration(trips)*roundTrip, f)
	if requests != some {
		require.Len(w, w.sent(begin, conn), requests, "%v", w.sent(begin, conn))
	}
}

const some = -1

// sent lists what a session has sent.
func (w *slow) sent(begin int, conn *zk.Conn) zktest.Log {
	return w.srv.Log()[begin:].Session(conn.SessionID()).Requests().Filter(func(e zktest.Entry) bool {
		return e.Op != zktest.OpMulti || e.Ops != 1
	})
}

func TestCostOfAFreeMutex(t *testing.T) {
	playSlow(t, func(w *slow) {
		conn := w.connect()
		m := w.mutex(conn, w.long())
		var h *Hold
		w.costs(conn, 2, 3, func() { // create; listing and own znode
			var err error
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
			require.NotZero(w, h.Token())
			require.NoError(w, h.Err())
		})
		w.costs(conn, 1, 1, func() {
			_, err := h.Multi(&zk.SetDataRequest{Path: "/locks", Version: -1})
			require.NoError(w, err)
		})
		w.costs(conn, 1, 1, func() { require.NoError(w, h.Release(w.Context())) })
		require.Zero(w, w.srv.Log().Session(conn.SessionID()).Filter(func(e zktest.Entry) bool { return e.Ops == 1 }), "no check is needed")
	})
}

func TestCostOfTryingAHeldMutex(t *testing.T) {
	playSlow(t, func(w *slow) {
		holder := w.lock(w.operator)
		conn := w.connect()
		w.costs(conn, 1, 1, func() {
			_, err := w.mutex(conn, w.long()).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
		})
		require.Len(w, w.created(), 1, "nothing is created")
		holder.release()
	})
}

func TestCostOfAContendedMutex(t *testing.T) {
	playSlow(t, func(w *slow) {
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
			require.Equal(w, begin.Add(5*roundTrip/2), last.Time, "the third, which sets the watch")
		}
		// To one that joined directly behind: the deletion, and its event.
		begin := len(w.srv.Log())
		released := time.Now()
		w.srv.Delay(zktest.BothWays, roundTrip/2, w.operator.SessionID())
		require.NoError(w, holder.hold.Release(w.Context()))
		w.pass(0)
		require.Equal(w, released.Add(roundTrip), waiting[0].at)
		require.Empty(w, w.sent(begin, conns[0]), "nothing is asked")

		// To one that joined farther back: and a listing.
		begin = len(w.srv.Log())
		released = time.Now()
		require.NoError(w, waiting[0].hold.Release(w.Context()))
		w.pass(roundTrip)
		require.Equal(w, released.Add(2*roundTrip), waiting[1].at)
		require.Len(w, w.sent(begin, conns[1]), 1)
		waiting[2].waits()
	})
}

// Goroutines that share a connection hand on as quickly as others.
func TestCostOfAHandOverOnOneConnection(t *testing.T) {
	playSlow(t, func(w *slow) {
		conn := w.connect()
		m := w.mutex(conn, w.long())
		first := w.startCall(conn, m.Lock)
		w.pass(2 * roundTrip)
		second := w.startCall(conn, m.Lock)
		w.pass(3 * roundTrip)
		w.costs(conn, 1, some, func() {
			first.release()
			second.holds()
		})
		second.release()
	})
}

// Only the direct successor is woken.
func TestCostOfAReleaseToOthers(t *testing.T) {
	play(t, 1, func(w *harness) {
		var line []*call
		for range 6 {
			line = append(line, w.lock(w.connect()))
		}
		for i, a := range line {
			w.srv.ResetLog()
			path := a.holds().Path()
			a.release()
			woken := []int64{a.conn.SessionID()} // by its own watch
			if i+1 < len(line) {
				woken = append(woken, line[i+1].conn.SessionID())
			}
			require.ElementsMatch(w, woken, w.srv.Log().Woken(path))
			for _, e := range w.srv.Log() {
				if e.Op != zktest.OpPing && e.Ops != 1 { // a proof
					require.Contains(w, woken, e.Session)
				}
			}
		}
	})
}

func TestCostOfAnRWMutex(t *testing.T) {
	playSlow(t, func(w *slow) {
		conn := w.connect()
		m := w.rw(conn, w.long())
		var h *WriteHold
		var err error
		w.costs(conn, 2, 3, func() {
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
		})
		w.costs(conn, 1, some, func() { // no write, so it looks like a proof
			_, err := h.Multi()
			require.NoError(w, err)
		})
		// The transaction; the read that sets the watch anew is waited for as well.
		w.costs(conn, 2, 2, func() { require.NoError(w, h.Downgrade(w.Context())) })
		other := w.connect()
		var r *Hold
		w.costs(other, 2, 3, func() {
			r, err = w.rw(other, w.long()).RLock(w.Context())
			require.NoError(w, err)
		})
		w.costs(other, 1, 1, func() {
			_, err := w.rw(other, w.long()).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
		})
		w.costs(other, 1, 1, func() { require.NoError(w, r.Release(w.Context())) })
		w.costs(conn, 1, 1, func() { require.NoError(w, h.Release(w.Context())) })
	})
}

// A writer wakes the readers directly behind it, or one writer.
func TestCostOfAWritersRelease(t *testing.T) {
	play(t, 1, func(w *harness) {
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

		// The readers before the last one in line wake nobody.
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

func TestCostOfRevocation(t *testing.T) {
	play(t, 1, func(w *harness) {
		conn := w.connect()
		h := w.lock(conn).holds()
		w.srv.ResetLog()
		h.Revoked()
		w.pass(0)
		require.Len(w, w.srv.Log().Session(conn.SessionID()).Requests(), 1)
		w.srv.ResetLog()
		require.NoError(w, h.Release(w.Context()))
		w.pass(0)
		require.Len(w, w.srv.Log().Session(conn.SessionID()).Requests(), 1)
	})
}

func TestCostOfALockDelay(t *testing.T) {
	playSlow(t, func(w *slow) {
		conn := w.connect()
		var h *Hold
		w.costs(conn, 4, 5, func() { // and a listing, and a transaction
			var err error
			h, err = w.mutex(conn, w.long(), WithLockDelay(time.Minute)).Lock(w.Context())
			require.NoError(w, err)
		})
		w.costs(conn, 1, 1, func() { require.NoError(w, h.Release(w.Context())) })
	})
}

func TestCostOfMulti(t *testing.T) {
	playSlow(t, func(w *slow) {
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
		w.costs(conn, 6, some, func() {
			h, err = m.Lock(w.Context())
			require.NoError(w, err)
		})
		w.costs(conn, 1, some, func() { // no write, so it looks like a proof
			_, err := h.Multi()
			require.NoError(w, err)
		})
		w.costs(conn, 1, 3, func() { require.NoError(w, h.Release(w.Context())) })
	})
}

// One request with one position.
func TestCostOfAPosition(t *testing.T) {
	playSlow(t, func(w *slow) {
		holder := w.lock(w.operator)
		conn := w.connect()
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.mutex(conn, w.long()).Join(ctx)
		w.pass(3 * roundTrip)
		w.costs(conn, 1, 1, func() {
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
