package queue_test

import (
	"math"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestContender_RejectsExhaustedSequenceNumbers checks that a contender does not join a queue whose sequence
// numbers are exhausted, and that the contenders that have joined before keep their order. Servers since 3.6 assign
// 2147483647 to all further znodes (ZOOKEEPER-2944, ZOOKEEPER-4706, kazoo #730).
// Scenario 32 of docs/traps.md.
func TestContender_RejectsExhaustedSequenceNumbers(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(dir, math.MaxInt32-3))
		var line, late []*client
		for range 3 {
			line = append(line, h.joinNew())
		}
		for range 3 {
			late = append(late, h.joinNew())
		}
		for _, c := range late {
			c.requireLeftBecause(leaderelection.ErrNodeExhausted)
		}
		require.Len(h, h.contenders(), 3)

		// The contenders that have joined before the exhaustion have their turns in their order.
		for i, c := range line {
			c.requireTurn()
			for _, next := range line[i+1:] {
				next.requireWaits()
			}
			c.requireLeaves()
		}
		h.joinNew().requireLeftBecause(leaderelection.ErrNodeExhausted)
		h.requireContenders()

		// After the queue was deleted and created again, contenders can join.
		if h.name == semaphore.name {
			return // the limit of a semaphore is stored in a child
		}
		h.remove(dir)
		h.create(dir)
		h.joinNew().requireSoleHolder()
	})
}

// TestContender_OrdersNegativeNumbersLast checks that a contender does not wait for a znode with a negative
// sequence number. Servers up to 3.5 continue with -2147483648 after the greatest number, and this text precedes
// all others in the order of the texts (kazoo #730, go-zookeeper PR 65).
// Scenario 32 of docs/traps.md.
func TestContender_OrdersNegativeNumbersLast(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(dir, math.MaxInt32-2))
		ahead, c := h.createForeignContender(), h.joinNew()
		behind := []string{h.createForeignContender()}
		for _, n := range []int32{math.MinInt32, math.MinInt32 + 1, -999_999_999, -9} {
			require.NoError(h, h.srv.SetSequence(dir, n))
			behind = append(behind, h.createForeignContender())
		}
		h.set(ahead, "makes the contender list the queue")
		c.requireWaits()
		h.remove(ahead)
		h.advance(timeout)
		c.requireTurn()
		require.NoError(h, h.srv.SetSequence(dir, math.MinInt32+7))
		h.joinNew().requireLeftBecause(leaderelection.ErrNodeExhausted)
		for _, path := range behind {
			h.remove(path)
		}
	})
}

// TestContender_IgnoresChildrenOfOtherKinds checks that a contender does not wait for a child of the queue that is
// not the znode of a contender (CURATOR-43, parseSeq of go-zookeeper).
// Scenario 34 of docs/traps.md.
func TestContender_IgnoresChildrenOfOtherKinds(t *testing.T) {
	const guid = "_c_00000000-0000-4000-8000-000000000000"
	forEachKind(t, all, 1, func(h *harness) {
		for _, name := range []string{
			"a", "config", "_c_x", "_c_", "_c_short" + h.base, h.base[1:], "0000000000", "-0000000000", "x-0000000001",
			guid + h.base, guid + h.base + "00000000x0", guid + h.base + "9999999999", guid + "-other-0000000000",
			"__lock__", "le_", "held-w-nobody", "\u00fcn\u00efcode-0000000000",
		} {
			h.create(dir + "/" + name)
		}
		c, next := h.joinNew(), h.joinNew()
		c.requireTurn()
		next.requireWaits()
		for _, name := range []string{"0", "-lock-x", "lock-99999999999"} {
			h.create(dir + "/" + name)
		}
		c.requireLeaves()
		next.requireSoleHolder()
	})
}

// TestContender_WaitsForContendersOfOtherLibraries checks that a contender waits for earlier contenders of other
// libraries, in the order of their sequence numbers.
// Scenario 34 of docs/traps.md.
func TestContender_WaitsForContendersOfOtherLibraries(t *testing.T) {
	forEachKind(t, []kind{election, prefix, mutex}, 1, func(h *harness) {
		var ahead []string
		for _, name := range []string{
			"_c_ffffffff-ffff-4fff-bfff-ffffffffffff" + h.base, // a name of Curator
			"_c_597de0d1c10b4e1ea9f73a88a1fa7c26" + h.base,     // a name of go-zookeeper
			h.base[1:], // a name of Curator without protection
			"ffffffffffffffffffffffffffffffff__lock__", // a name of kazoo
			"00000000000000000000000000000000__lock__",
		} {
			ahead = append(ahead, h.createSequential(name))
		}
		c := h.joinNew()
		for i := len(ahead) - 1; i >= 0; i-- {
			c.requireWaits()
			h.remove(ahead[i])
			h.advance(0)
		}
		c.requireSoleHolder()
	})
}

// TestToken_IncreasesWhenSequenceNumbersRestart checks that the fencing tokens increase although the queue is
// deleted and created again, which makes its sequence numbers restart at 0.
// Scenario 35 of docs/traps.md.
func TestToken_IncreasesWhenSequenceNumbersRestart(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		conn := h.connect()
		last := int64(0)
		for range 3 {
			h.srv.Sweep() // remove the container that the recipe has created
			if h.statOf(dir) != nil {
				for _, name := range children(h) {
					h.remove(dir + "/" + name)
				}
				h.remove(dir)
			}
			_, err := h.operator.CreateContainer(dir, nil, zk.FlagContainer, openACL)
			require.NoError(h, err)
			c := h.join(conn)
			require.Regexp(h, "0000000000$", h.contenders()[0])
			require.Greater(h, c.requireTurn().Token(), last)
			last = c.newest().Token()
			c.requireLeaves()
		}
	})
}

// children returns the names of the children of the queue.
func children(h *harness) []string {
	names, _, err := h.operator.Children(dir)
	require.NoError(h, err)
	return names
}

// TestContender_CreatesNoZnodeIfPredecessorIsMissing checks that a contender whose predecessor does not exist does
// not create its znode again, because the next contender would then do the same, without end (CURATOR-504,
// CURATOR-644, FLINK-28078).
// Scenario 39 of docs/traps.md.
func TestContender_CreatesNoZnodeIfPredecessorIsMissing(t *testing.T) {
	forEachKind(t, all, 3, func(h *harness) {
		const count = 30
		conns := []*zk.Conn{h.connect(), h.connect()}
		var line []*client
		for i := range count {
			line = append(line, h.join(conns[i%4/2]))
		}
		znodes := h.contenders()
		// Delete every second contender, most of them while the connections are down.
		for i := 0; i < count; i += 2 {
			if i == count/3 {
				for _, conn := range conns {
					h.disconnect(conn)
				}
			}
			h.remove(znodes[i])
		}
		h.advance(moment)
		h.reconnect()
		var remaining []string
		for i, c := range line {
			switch {
			case i%2 == 0:
				c.requireLeftBecause(leaderelection.ErrDeleted)
				continue
			case i == 1:
				c.requireTurn()
			default:
				c.requireWaits()
			}
			remaining = append(remaining, znodes[i])
		}
		h.requireContenders(remaining...)
		require.Len(h, h.created(), count, "a contender has created a second znode")
		h.allowWatches = true // contenders that were deleted do not remove their watches
	})
}

// TestContender_ContinuesAfterAnyRequestFails checks that a contender continues after its connection breaks at any
// one of its requests, in any way (CURATOR-518, helix #2815). The reply "session moved" is tested with elections
// only, because all kinds of contenders handle error codes alike.
// Scenario 41 of docs/traps.md.
func TestContender_ContinuesAfterAnyRequestFails(t *testing.T) {
	for _, k := range all {
		losses := bubble.ConnectionLost
		if k.name == election.name {
			losses = bubble.LostReplies
		}
		for _, l := range losses {
			t.Run(k.name+", "+l.Name, func(t *testing.T) {
				nth := 1
				for met := true; met; nth++ {
					run(t, k, 1, func(h *harness) { met = testFailedRequest(h, l, nth) })
				}
				require.Greater(t, nth, 12)
			})
		}
	}
}

// testFailedRequest tests a contender whose nth request fails, and reports whether the contender has sent so many
// requests.
func testFailedRequest(h *harness, l bubble.Fault, nth int) bool {
	ahead, conn := h.createForeignContender(), h.connect()
	session := conn.SessionID()
	c := h.prepare(conn)
	broken := l.Set(h.srv, zktest.Match{Session: session, Path: dir + "*", Nth: nth})
	c.start()
	h.advance(timeout + moment)
	c.requireWaits()
	h.remove(ahead)
	h.advance(3 * timeout)
	g := c.newest()
	require.NotNil(h, g, "request %d: %v", nth, c.result())
	if g.Err() != nil { // the request that has failed was a check
		require.True(h, l.Silent, "request %d: %v", nth, g.Err())
		require.ErrorIs(h, g.Err(), leaderelection.ErrLeaseExpired)
		h.advance(timeout)
		require.Equal(h, h.resumes, c.newest().Err() == nil)
	}
	_ = c.leave()
	h.advance(2 * timeout)
	require.NoError(h, c.leave(), "request %d", nth)
	h.requireContenders()
	require.Equal(h, session, conn.SessionID())
	return bubble.HasRun(broken)
}
