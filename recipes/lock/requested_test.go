package lock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// isReleaseRequested reports whether the hold has noticed a request to release. The first call for a hold sets
// the watch that is necessary for this.
func isReleaseRequested(h *Hold) bool {
	select {
	case <-h.ReleaseRequested():
		return true
	default:
		return false
	}
}

// TestReleaseRequested_ReportsOnlyRequests checks that ReleaseRequested reports a request to release, and does
// not report another write to the holder's znode.
func TestReleaseRequested_ReportsOnlyRequests(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		h := first.requireHolds()
		require.False(w, isReleaseRequested(h))
		w.passTime(0)

		// Data other than "__REVOKE__" is no request, and does not end the watch.
		w.set(h.Path(), "something else")
		w.passTime(0)
		require.False(w, isReleaseRequested(h))

		m := w.mutex(w.operator)
		all, err := m.Contenders(w.Context())
		require.NoError(w, err)
		require.NoError(w, m.RequestRelease(w.Context(), all[0]))
		w.passTime(0)
		require.True(w, isReleaseRequested(h))
		require.NoError(w, h.Err(), "the request does not end the hold")
		second.requireWaits()
		all, err = m.Contenders(w.Context())
		require.NoError(w, err)
		require.Equal(w, "__REVOKE__", all[0].Name, "the data that Curator writes as well")

		first.release()
		second.requireHolds()
		require.False(w, isReleaseRequested(second.hold))
		require.ErrorIs(w, m.RequestRelease(w.Context(), all[0]), recipes.ErrNotHeld)
		require.ErrorIs(w, m.RequestRelease(w.Context(), Contender{Path: "/locks/two/x"}), recipes.ErrInvalid)
	})
}

// TestReleaseRequested_ReportsRequestAfterUnreadableData checks that ReleaseRequested reports a request
// although the holder could not read the data of its znode for a while.
func TestReleaseRequested_ReportsRequestAfterUnreadableData(t *testing.T) {
	tooLarge := func(w *harness, path string) { w.set(path, strings.Repeat("x", 100<<10)) }
	noRight := func(w *harness, path string) {
		_, err := w.operator.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(w, err)
	}
	for _, tt := range []struct {
		name    string
		change  func(w *harness, path string)
		watched bool          // whether the server stores the watch at the time of the change
		within  time.Duration // the longest time until the hold reports the request
	}{
		{"too large before the first read", tooLarge, false, 4 * timeout},
		{"too large", tooLarge, true, 4 * timeout},
		{"no right to read before the first read", noRight, false, 4 * timeout},
		// The server removes the watch of a client that must not read the znode, and sends no event.
		{"no right to read", noRight, true, watch.MaxDelay},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				first := w.lock(w.connect())
				h := first.requireHolds()
				if tt.watched {
					require.False(w, isReleaseRequested(h))
					w.passTime(0)
				}
				tt.change(w, h.Path())
				require.False(w, isReleaseRequested(h))
				w.passTime(timeout)
				w.set(h.Path(), "another name")
				w.passTime(timeout)
				_, err := w.operator.SetACL(h.Path(), zk.WorldACL(zk.PermAll), -1)
				require.NoError(w, err)
				require.False(w, isReleaseRequested(h))
				w.set(h.Path(), releaseRequest)
				w.passTime(tt.within)
				require.True(w, isReleaseRequested(h))
				first.release()
			})
		})
	}
}

// TestReleaseRequested_ReportsRequestSentWhileWaiting checks that ReleaseRequested reports a request that was
// sent to a waiting contender, as soon as the contender holds the lock.
func TestReleaseRequested_ReportsRequestSentWhileWaiting(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		m := w.mutex(w.operator)
		all, err := m.Contenders(w.Context())
		require.NoError(w, err)
		require.NoError(w, m.RequestRelease(w.Context(), all[1]))
		w.passTime(0)
		first.release()
		require.False(w, isReleaseRequested(second.requireHolds()))
		w.passTime(0)
		require.True(w, isReleaseRequested(second.hold))
	})
}

// TestReleaseRequested_ReportsRequestAfterReconnect checks that ReleaseRequested reports a request that was
// sent while the holder was disconnected, because the holder reads its znode again after the reconnect. The
// client library alone would miss the request: it can set the watch with a zxid that is too new, or fail to set
// the watch.
func TestReleaseRequested_ReportsRequestAfterReconnect(t *testing.T) {
	for _, watchIsLost := range []bool{false, true} {
		runTest(t, 3, func(w *harness) {
			a := w.lock(w.connect())
			h := a.requireHolds()
			h.ReleaseRequested()
			w.passTime(0)
			if watchIsLost {
				lost := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: a.session()}, zktest.Fail(zktest.Code(-5)))
				defer lost.Remove()
				defer w.requireCalled(lost)
			}
			bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.DropConnections(a.session()) })
			w.set(h.Path(), releaseRequest)
			w.passTime(timeout / 4)
			require.NoError(w, h.Err())
			require.True(w, isReleaseRequested(h))
		})
	}
}

// TestReleaseRequested_WatchesNewZnodeAfterDowngrade checks that ReleaseRequested reports a request at the new
// znode of a holder that has downgraded its lock.
func TestReleaseRequested_WatchesNewZnodeAfterDowngrade(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.requireHolds()
		h.ReleaseRequested()
		w.passTime(0)
		// The holder receives the event of the deletion of its old znode before the reply that shows the new
		// one.
		hold, open := bubble.Hold(w)
		w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, hold)
		down := bubble.Async(func() error { return x.write.Downgrade() })
		w.passTime(0)
		open()
		require.NoError(w, <-down)
		w.passTime(0)
		require.False(w, isReleaseRequested(h))
		w.set(h.Path(), releaseRequest)
		w.passTime(0)
		require.True(w, isReleaseRequested(h))
		x.release()
	})
}

// TestReleaseRequested_WatchEndsWithHold checks that the watch of ReleaseRequested ends with the hold, however
// the hold ends, and that a later hold of the same Mutex does not report an earlier request.
func TestReleaseRequested_WatchEndsWithHold(t *testing.T) {
	for name, end := range map[string]func(w *harness, a *call){
		"release":         func(w *harness, a *call) { a.release() },
		"znode deleted":   func(w *harness, a *call) { w.remove(a.hold.Path()) },
		"session expired": func(w *harness, a *call) { w.expire(a.conn) },
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 3, func(w *harness) {
				a := w.lock(w.connect())
				h := a.requireHolds()
				h.ReleaseRequested()
				w.passTime(0)
				end(w, a)
				w.passTime(timeout)
				require.Error(w, h.Err())
				<-h.watching
				require.False(w, isReleaseRequested(h))
				require.Empty(w, w.srv.Watches())
				late := w.lock(a.conn)
				late.release()
				require.False(w, isReleaseRequested(late.hold))
			})
		})
	}
}

// TestReleaseRequested_DowngradeLosesUnreadRequest checks that a downgrade loses a request at the old znode
// that the holder has not read, as ReleaseRequested documents.
func TestReleaseRequested_DowngradeLosesUnreadRequest(t *testing.T) {
	for _, seen := range []bool{true, false} {
		runTest(t, 1, func(w *harness) {
			x := w.write(w.connect())
			x.requireHolds()
			if seen {
				x.hold.ReleaseRequested()
				w.passTime(0)
			}
			require.NoError(w, w.rw(w.operator).RequestRelease(w.Context(), Contender{Path: x.hold.Path()}))
			w.passTime(0)
			x.downgrade()
			w.passTime(moment)
			x.hold.ReleaseRequested()
			w.passTime(moment)
			require.Equal(w, seen, isReleaseRequested(x.hold))
			x.release()
		})
	}
}

// TestReleaseRequested_ReusesOneWatch checks that a holder that waits for requests to release does not add
// watches with reconnects or repeated calls.
// Scenario 25 of docs/traps.md.
func TestReleaseRequested_ReusesOneWatch(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		a := w.lock(w.connect())
		h := a.requireHolds()
		h.ReleaseRequested()
		for i := range 10 {
			w.set(h.Path(), fmt.Sprint(i))
			w.passTime(0)
			h.ReleaseRequested()
			require.Equal(w, 2, bubble.Watches(a.conn))
			bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
			w.passTime(timeout / 5)
			require.Equal(w, 3, bubble.Watches(a.conn), "the watch on the data was set again")
		}
		refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: a.conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
		w.passTime(timeout / 2)
		w.requireCalled(refused)
		w.set(h.Path(), releaseRequest)
		w.passTime(0)
		require.True(w, isReleaseRequested(h))
		a.release()
		require.Zero(w, bubble.Watches(a.conn))
	})
}
