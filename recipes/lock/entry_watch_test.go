package lock

import (
	"fmt"
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv/clientwatch"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-107, helix #44: an exists request for a predecessor that was deleted sets a watch that
// never fires, and a contender that does not list the queue again waits forever.
func TestTrap24_PredecessorIsDeleted(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a lost reply %v", lost), func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.createLockNode()
				ahead := w.createContender("-lock-")
				reads := 1
				if lost {
					w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: 1}, zktest.Cut)
					reads = 2
				}
				gone := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: reads}, func(q *zktest.Request) zktest.Verdict {
					_ = w.operator.Delete(ahead, -1)
					return zktest.Pass(q)
				})
				a := w.lock(w.connect())
				w.pass(timeout)
				w.ran(gone)
				require.Equal(w, []string{a.holds().Path()}, w.watched())
				want := 1
				if lost {
					want = 2 // the watch on the contender's znode was set again after the reconnect
				}
				require.Equal(w, want, clientwatch.Count(a.conn))
			})
		})
	}
}

// kazoo #175, CURATOR-14, CURATOR-240, go-zookeeper #76: each retry sets another watch and
// abandons the previous one.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		w.createLockNode()
		conn := w.connect()
		ahead := w.createContender("-lock-")
		a := w.lock(conn)
		own := w.contenders()[1]
		most := 2
		watched := []string{ahead, own}
		set := func() {
			w.Helper()
			require.ElementsMatch(w, watched, w.watched())
			require.LessOrEqual(w, clientwatch.Count(conn), most)
		}
		set()
		most = 12 // the watch on the contender's znode is set again after each disconnect, up to a limit
		for i := range 20 {
			w.set(ahead, fmt.Sprint(i))
			w.pass(0)
			set()
			w.servers(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			w.pass(timeout / 5)
			set()
		}
		// Other contenders join behind it and leave, some by TryLock. They leave one watch.
		watched, most = append(watched, own), most+1
		for range 10 {
			other := w.lock(conn)
			other.cancel()
			w.pass(0)
			set()
			_, err := w.mutex(conn).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			set()
		}
		w.remove(ahead)
		w.pass(0)
		h := a.holds()
		h.ReleaseRequested()
		w.pass(0)
		require.LessOrEqual(w, clientwatch.Count(conn), most)
		a.release()
		require.Empty(w, w.watched())
		require.Zero(w, clientwatch.Count(conn))
	})
}

// CURATOR-258, CURATOR-329: an unrelated event consumes the watch, which is not set again.
func TestTrap26_UnrelatedEvents(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		ahead := w.createContender("-lock-")
		a, last := w.lock(w.connect()), w.lock(w.connect())
		line := w.contenders()
		for i := range 5 {
			for _, path := range append([]string{node}, line...) {
				w.set(path, fmt.Sprint(i))
				w.pass(0)
				require.ElementsMatch(w, []string{ahead, line[1], line[1], line[2]}, w.watched())
			}
			_, err := w.operator.SetACL(ahead, zk.WorldACL(zk.PermAll), -1)
			require.NoError(w, err)
		}
		w.pass(timeout)
		a.waits()
		w.remove(ahead)
		w.pass(0)
		h := a.holds()
		w.set(h.Path(), "data of the holder")
		w.pass(timeout)
		require.NoError(w, h.Err())
		last.waits()
		a.release()
		last.holds()
	})
}

// ZooKeeper's recipes page: if all contenders watch the first one or the parent, all wake when one
// leaves.
func TestTrap52_NoHerd(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		const count = 20
		var all []*call
		for range count {
			all = append(all, w.lock(w.connect()))
		}
		line := w.contenders()
		var want []string
		w.pass(timeout)
		for i, path := range line {
			want = append(want, path) // the watch of the contender itself, and those of the next two
			for range line[i+1 : min(i+3, count)] {
				want = append(want, path)
			}
		}
		require.ElementsMatch(w, want, w.watched())
		for _, gone := range []int{count / 2, 0} { // a contender in the middle, and the holder
			w.srv.ResetLog()
			if gone == 0 {
				all[0].release()
			} else {
				all[gone].cancel()
				w.pass(0)
			}
			woken := []int64{all[gone].conn.SessionID(), all[gone+1].conn.SessionID(), all[gone+2].conn.SessionID()}
			require.ElementsMatch(w, woken, w.srv.Log().Woken(line[gone]))
			for _, e := range w.srv.Log() {
				if e.Op == zktest.OpGetChildren2 || e.Op == zktest.OpNotification {
					require.Contains(w, woken, e.Session)
				}
			}
		}
		all[1].holds()
	})
}

// Readers do not watch the lock's znode or more than one writer either.
func TestTrap52_NoHerdOfReaders(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.write(w.connect()), w.write(w.connect())
		var readers []*call
		for range 10 {
			readers = append(readers, w.read(w.connect()))
		}
		path := first.holds().Path()
		w.srv.ResetLog()
		first.release()
		require.ElementsMatch(w, []int64{first.conn.SessionID(), second.conn.SessionID()}, w.srv.Log().Woken(path))
		for _, r := range readers {
			r.waits()
			require.Empty(w, w.srv.Log().Session(r.conn.SessionID()).Requests())
		}
		second.release()
		for _, r := range readers {
			r.holds()
		}
	})
}

// CURATOR-43, go-zookeeper's Lock: a child that is not a contender breaks the parsing, or is
// waited for.
func TestTrap34_UnrecognizedChildren(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		for _, name := range []string{"config", "_c_", "_c_short-lock-", "lock-", "x-0000000001", "held-w-nobody", "\u00e9"} {
			w.create(node + "/" + name)
		}
		a, next := w.lock(w.connect()), w.lock(w.connect())
		a.holds()
		next.waits()
		for _, name := range []string{"0", "-lock-x", "lock-99999999999"} {
			w.create(node + "/" + name)
		}
		all, err := w.mutex(w.operator).Contenders(w.Context())
		require.NoError(w, err)
		require.Len(w, all, 2)
		a.release()
		next.release()
		h, err := w.mutex(w.operator).TryLock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Release())
		with := w.lock(w.connect(), WithLockDelay(lockDelay))
		w.pass(lockDelay)
		with.release()
		require.Contains(w, w.srv.Tree(), "config")
	})
}

// An ephemeral child that ends in ten digits is a contender of a hand-written lock,
// and counts as a writer.
func TestContenders_HandWritten(t *testing.T) {
	for _, name := range []string{"/x-", "/n_", "/", "/write-", "/read-"} {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
			ahead, err := w.operator.Create(node+name, []byte("of another program"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			a := w.lock(w.connect())
			a.waits()
			_, err = w.mutex(w.operator).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			all, err := w.mutex(w.operator).Contenders(w.Context())
			require.NoError(w, err)
			require.Len(w, all, 2)
			require.Equal(w, ahead, all[0].Path)
			require.True(w, all[0].Holds)
			require.False(w, all[1].Holds)
			w.remove(ahead)
			w.pass(0)
			a.release()

			ahead, err = w.operator.Create(w.rw(w.operator).setup.Path+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			r, x := w.read(w.connect()), w.write(w.connect())
			r.waits()
			x.waits()
			w.remove(ahead)
			w.pass(0)
			r.release()
			x.release()
		})
	}
}

// Contenders of other libraries are queued in the order of their sequence numbers.
func TestTrap34_OtherLibraries(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		for _, name := range []string{
			"/_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lock-", // Curator
			"/_c_597de0d1c10b4e1ea9f73a88a1fa7c26-lock-",     // go-zookeeper
			"/lock-", // Curator without protection
			"/597de0d1c10b4e1ea9f73a88a1fa7c26__lock__", // kazoo
		} {
			ahead, err := w.operator.Create(node+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			first := w.lock(w.connect())
			second := w.lock(w.connect(), recipes.WithKazooLayout())
			first.waits()
			w.remove(ahead)
			w.pass(0)
			first.release()
			second.release()
		}
	})
}
