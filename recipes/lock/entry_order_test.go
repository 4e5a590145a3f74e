package lock

import (
	"math"
	"sync"
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// ZOOKEEPER-2944, ZOOKEEPER-4706, kazoo #730: the sequence numbers are exhausted.
// Servers since 3.6 then assign 2147483647 to all new znodes. None of these
// contenders would have a predecessor, and all would acquire the lock.
func TestTrap32_SequenceNumbersExhausted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-3))
		var line, late []*call
		for range 3 {
			line = append(line, w.lock(w.connect()))
		}
		for range 3 {
			late = append(late, w.lock(w.connect()))
		}
		for _, a := range late {
			require.ErrorIs(w, a.failed(), recipes.ErrNodeExhausted)
		}
		w.requireContenders(w.contenders()[:3]...)

		// The contenders that are already queued acquire the lock in their order.
		line[0].release()
		line[1].holds()
		line[2].waits()
		line[1].release()
		require.Greater(w, line[2].holds().Token(), line[1].hold.Token())
		line[2].release()
		_, err := w.mutex(w.operator).TryLock(w.Context())
		require.ErrorIs(w, err, recipes.ErrNodeExhausted)
		w.requireContenders()

		// After the lock's znode was re-created, the lock can be acquired again.
		w.remove(node)
		w.lock(w.connect()).requireOnlyZnode()
	})
}

// Trap 32 for readers, of which several may hold the lock, and writers.
func TestTrap32_SequenceNumbersOfRWMutexExhausted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-3))
		x := w.write(w.connect())
		r := w.read(w.connect())
		last := w.write(w.connect())
		require.ErrorIs(w, w.read(w.connect()).failed(), recipes.ErrNodeExhausted)
		x.downgrade()
		w.pass(0)
		require.Contains(w, x.hold.Path(), "__READ__2147483644")
		r.release()
		last.waits()
		x.release()
		last.release()
	})
}

// kazoo #730, go-zookeeper PR 65: servers up to 3.5 continue with -2147483648, which comes first
// if names are sorted as text.
func TestTrap32_NegativeNumbersComeLater(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-1))
		a := w.lock(w.connect())
		want := []string{a.holds().Path()}
		for _, n := range []int32{math.MinInt32, math.MinInt32 + 1, -999_999_999, -9} {
			require.NoError(w, w.srv.SetSequence(node, n))
			want = append(want, w.createContender("-lock-"))
		}
		all, err := w.mutex(w.operator).Contenders(w.Context())
		require.NoError(w, err)
		var got []string
		for _, c := range all {
			got = append(got, c.Path)
		}
		require.Equal(w, want, got)
		require.NoError(w, a.hold.Err())
		require.NoError(w, w.srv.SetSequence(node, math.MinInt32+7))
		require.ErrorIs(w, w.lock(w.connect()).failed(), recipes.ErrNodeExhausted)
		for _, path := range want[1:] {
			w.remove(path)
		}
	})
}

// The sequence number cannot be the token: it restarts if the lock's znode is re-created.
func TestTrap35_SequenceNumbersRestart(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		var last *call
		for range 3 {
			a := w.lock(conn)
			require.Contains(w, a.holds().Path(), "-0000000000")
			if last != nil {
				require.Greater(w, a.hold.Token(), last.hold.Token())
			}
			a.release()
			require.Equal(w, 1, w.srv.Sweep())
			last = a
		}
	})
}

// CURATOR-620, CURATOR-652, CURATOR-653: concurrent resets create two znodes, or two holders, or
// leave a znode.
func TestTrap38_ConcurrentResets(t *testing.T) {
	for round := range 10 {
		runTest(t, 3, func(w *harness) {
			conn := w.connect()
			drop := func() { w.servers(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) }) }
			a := w.startCall(conn, w.mutex(conn).Lock)
			drop()
			w.pass(timeout)
			h := a.holds()
			a.requireOnlyZnode()
			var ended sync.WaitGroup
			for i := range 10 {
				if i == round {
					drop()
				}
				ended.Go(func() { require.NoError(w, h.Release()) })
				ended.Go(func() { h.ReleaseRequested() })
				ended.Go(func() { _, _ = h.Multi() })
			}
			ended.Wait()
			w.requireContenders()
			w.pass(timeout)
			require.Equal(w, zk.StateHasSession, conn.State())
		})
	}
}

// CURATOR-504, CURATOR-644, FLINK-28078: a contender whose predecessor is missing re-creates its
// znode, which makes its follower do so, and so on forever.
func TestTrap39_NoCreateStorm(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		const count = 30
		conns := []*zk.Conn{w.connect(), w.connect()}
		var all []*call
		for i := range count {
			all = append(all, w.lock(conns[i%4/2]))
		}
		line := w.contenders()
		// Every second contender is deleted, most of them while the connections are down.
		for i := 0; i < count; i += 2 {
			if i == count/3 {
				for _, conn := range conns {
					w.cut(conn)
				}
			}
			w.remove(line[i])
		}
		w.pass(moment)
		w.restore()
		var left []string
		for i, a := range all {
			switch {
			case i == 0:
				require.ErrorIs(w, a.hold.Err(), recipes.ErrDeleted)
			case i == 1:
				a.holds()
			case i%2 == 0:
				require.ErrorIs(w, a.failed(), recipes.ErrDeleted)
			default:
				a.waits()
			}
			if i%2 == 1 {
				left = append(left, line[i])
			}
		}
		w.requireContenders(left...)
		require.Len(w, w.created(), count, "no contender re-creates its znode")
		w.allowLeftovers = true // deleted contenders leave their watches
	})
}

// CURATOR-518, helix #2815: the connection breaks at any request of a contender, from the first to
// the last, in any way. The contender recovers.
func TestTrap41_BreakAtEachRequest(t *testing.T) {
	for _, kind := range []string{"mutex", "delay", "read", "write"} {
		for _, l := range lostreply.All {
			t.Run(kind+", "+l.Name, func(t *testing.T) {
				k := 1
				for met := true; met; k++ {
					runTest(t, 1, func(w *harness) {
						met = breakAtRequest(w, kind, l, k)
					})
				}
				require.Greater(t, k, 15)
			})
		}
	}
}

// breakAtRequest breaks the connection at the k-th request of a contender that waits, holds and
// releases. It reports whether the contender has sent so many requests.
func breakAtRequest(w *harness, kind string, l lostreply.Fault, k int) bool {
	w.createLockNode()
	base := map[string]string{"mutex": "-lock-", "delay": "-lock-", "read": "-__WRIT__", "write": "-__READ__"}[kind]
	ahead, conn := w.createContender(base), w.connect()
	session := conn.SessionID()
	broken := l.Set(w.srv, zktest.Match{Session: session, Path: node + "*", Nth: k})
	var a *call
	var x *writer
	switch kind {
	case "mutex":
		a = w.lock(conn)
	case "delay":
		a = w.lock(conn, WithLockDelay(lockDelay))
	case "read":
		a = w.read(conn)
	case "write":
		x = w.write(conn)
		a = x.call
	}
	w.pass(timeout + moment)
	a.waits()
	w.remove(ahead)
	w.pass(3 * timeout)
	h := a.heldOrNil()
	if h == nil {
		// The lease of a contender that held the lock has expired, because no reply arrived.
		require.True(w, l.Silent, "request %d: %v", k, a.hold.Err())
		require.ErrorIs(w, a.hold.Err(), recipes.ErrLeaseExpired)
	} else if x != nil {
		down := async(func() error { return x.write.Downgrade() })
		w.pass(timeout)
		if err := <-down; err != nil {
			require.True(w, l.Silent, "request %d: %v", k, err)
		}
	}
	released := async(func() error { return bubble.Repeated(a.hold.Release) })
	w.pass(2 * timeout)
	require.Len(w, released, 1, "request %d", k)
	require.NoError(w, <-released, "request %d", k)
	w.requireContenders()
	require.Equal(w, session, conn.SessionID())
	return ran(broken)
}

// heldOrNil is like holds, but returns nil if the lock was granted and is lost.
func (a *call) heldOrNil() *Hold {
	a.w.Helper()
	<-a.done
	require.NoError(a.w, a.err)
	if a.hold.Err() != nil {
		return nil
	}
	return a.hold
}
