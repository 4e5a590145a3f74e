package lock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRWMutex_RecognizesBothLayouts checks that readers and writers with the layout of Curator and those with
// the layout of kazoo wait for each other.
func TestRWMutex_RecognizesBothLayouts(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		kazoo := recipes.WithKazooLayout()
		first := w.write(w.connect(), kazoo)
		r := w.read(w.connect())
		second := w.write(w.connect())
		last := w.read(w.connect(), kazoo)
		first.release()
		r.requireHolds()
		second.requireWaits()
		last.requireWaits()
		r.release()
		second.release()
		last.requireHolds()
	})
}

// TestRWMutex_TryRLockDoesNotOvertakeWriter checks that TryRLock succeeds while other readers hold the lock,
// and fails while a writer waits.
func TestRWMutex_TryRLockDoesNotOvertakeWriter(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m := w.rw(conn)
		_, err := m.TryRLock(w.Context())
		require.NoError(w, err)
		r, err := m.TryRLock(w.Context())
		require.NoError(w, err, "readers do not exclude each other")
		w.allowLeftovers = true
		_, err = m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		writer := w.write(w.connect())
		_, err = m.TryRLock(w.Context())
		require.ErrorIs(w, err, ErrHeld, "a writer waits")
		writer.requireWaits()
		require.NoError(w, r.Release())
	})
}

// takeTurns acquires the lock for each client several times, so that the first client expects its usual predecessor
// and joins without a listing of the queue. It returns when each client has joined the queue again and the first
// one has its turn.
func takeTurns(w *harness, conns []*zk.Conn, locks []func(context.Context) (*Hold, error)) []*call {
	calls := make([]*call, len(locks))
	join := func(i int) {
		calls[i] = w.startCall(conns[i], locks[i])
		w.passTime(0)
	}
	for i := range calls {
		join(i)
	}
	for range 4 {
		for i, c := range calls {
			c.requireHolds()
			c.release()
			join(i)
		}
	}
	return calls
}

// lockForWriting returns a function that acquires the lock for writing.
func lockForWriting(m *RWMutex) func(context.Context) (*Hold, error) {
	return func(ctx context.Context) (*Hold, error) {
		h, err := m.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Hold, nil
	}
}

// TestRWMutex_ReaderDoesNotWaitForPredictedReader checks that a reader does not wait for another reader that
// was its predecessor when the same RWMutex acquired the lock for writing.
func TestRWMutex_ReaderDoesNotWaitForPredictedReader(t *testing.T) {
	for _, try := range []bool{false, true} {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
			conns := []*zk.Conn{w.connect(), w.connect(), w.connect()}
			m := w.rw(conns[0])
			calls := takeTurns(w, conns, []func(context.Context) (*Hold, error){lockForWriting(m), w.rw(conns[1]).RLock, w.rw(conns[2]).RLock})
			calls[0].release()
			read := m.RLock
			if try {
				read = m.TryRLock
			}
			r := w.startCall(conns[0], read)
			w.passTime(0)
			w.requireHolding(append(calls[1:], r)...)
		})
	}
}

// TestRWMutex_RejectsUpgrade checks that Lock returns ErrUpgrade to a reader instead of waiting for the
// reader's own read lock.
func TestRWMutex_RejectsUpgrade(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m := w.rw(conn)
		r := w.read(conn).requireHolds()
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		w.requireElapsed(0, func() {
			_, err := m.Lock(ctx)
			require.ErrorIs(w, err, ErrUpgrade)
			_, err = m.TryLock(ctx)
			require.ErrorIs(w, err, ErrUpgrade)
			_, err = m.RLock(ctx)
			require.ErrorIs(w, err, ErrReentrant, "the reader would wait for a writer that waits for the caller")
		})
		// The context of a read lock does not affect other locks.
		other := w.rwAt(conn, "/locks/two")
		x, err := other.Lock(ctx)
		require.NoError(w, err)
		_, err = other.RLock(x.Context())
		require.ErrorIs(w, err, ErrReentrant)
		require.NoError(w, x.Downgrade())
		_, err = other.Lock(x.Context())
		require.ErrorIs(w, err, ErrUpgrade)
		require.NoError(w, x.Release())
	})
}

// TestRWMutex_ReadersLeaveAtMostOneWatch checks that several readers on one connection that wait for the same
// writer and give up leave at most one watch on the writer.
func TestRWMutex_ReadersLeaveAtMostOneWatch(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.requireHolds()
		stays, conn := w.read(w.connect()), w.connect()
		before := w.watched()
		for range 5 {
			r, other := w.read(conn), w.read(conn)
			r.requireWaits()
			other.requireWaits()
			r.cancel()
			other.cancel()
			w.passTime(0)
			r.requireFails(context.Canceled)
			require.ElementsMatch(w, append(before, x.hold.Path()), w.watched())
			require.Equal(w, 1, bubble.Watches(conn))
		}
		stays.requireWaits()
		x.release()
		stays.requireHolds()
		require.Zero(w, bubble.Watches(conn))
	})
}

// TestRWMutex_ReaderGivesUpWithoutWakingOthers checks that a reader that gives up sends one request, and wakes
// no other reader that waits for the same writer.
func TestRWMutex_ReaderGivesUpWithoutWakingOthers(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.requireHolds()
		const readers = 20
		var all []*call
		for i := range readers {
			conn := w.connect()
			for range 1 + i%2 {
				r := w.read(conn)
				r.requireWaits()
				all = append(all, r)
			}
		}
		w.srv.ResetLog()
		for _, r := range all[1:] {
			r.cancel()
		}
		w.passTime(0)
		requests := w.srv.Log().Requests()
		require.Len(w, requests, len(all)-1, requests)
		require.Equal(w, len(all)-1, requests.Count(zktest.OpDelete))
		x.release()
		all[0].requireHolds()
	})
}

// TestRWMutex_WaitsOnlyForConflictingContenders checks that a contender waits exactly for the earlier
// contenders that exclude it, in any queue of five contenders, with two orders of releases. In kazoo #649 a
// reader waits for itself, or a writer does not notice readers.
// Scenario 47 of docs/traps.md.
func TestRWMutex_WaitsOnlyForConflictingContenders(t *testing.T) {
	for _, layout := range []recipe.Layout{recipe.Curator, recipe.Kazoo} {
		for kinds := range 1 << 5 {
			t.Run(fmt.Sprintf("layout %d, %05b", layout, kinds), func(t *testing.T) {
				runTest(t, 1, func(w *harness) { requireCorrectWaits(w, kinds, recipe.WithLayout(layout)) })
			})
		}
	}
}

// requireCorrectWaits asserts in one queue of five contenders that each contender waits exactly for the earlier
// contenders that exclude it. A contender is a writer if its bit in kinds is set.
func requireCorrectWaits(w *harness, kinds int, layout Option) {
	conns := []*zk.Conn{w.connect(), w.connect()}
	type contender struct {
		*call
		writes bool
	}
	var line []contender
	for i := range 5 {
		c := contender{writes: kinds>>i&1 == 1}
		if c.writes {
			c.call = w.write(conns[i%2], layout).call
		} else {
			c.call = w.read(conns[i%2], layout)
		}
		line = append(line, c)
	}
	for turn := 0; len(line) > 0; turn++ {
		var holding []int
		for i, c := range line {
			free := !slices.ContainsFunc(line[:i], func(ahead contender) bool { return ahead.writes || c.writes })
			if free {
				c.requireHolds()
				holding = append(holding, i)
			} else {
				c.requireWaits()
			}
		}
		require.NotEmpty(w, holding)
		// Release the last holder in one turn, and the first holder in the next.
		i := holding[len(holding)-1]
		if turn%2 == 1 {
			i = holding[0]
		}
		line[i].release()
		w.passTime(moment)
		line = slices.Delete(line, i, i+1)
	}
}
