package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestContender_WakesIfPredecessorIsDeletedBeforeWatch checks that a contender has its turn although its
// predecessor is deleted before the contender watches it, and that the contender leaves no watch on the deleted
// znode (CURATOR-107, helix #44).
// Scenario 24 of docs/traps.md.
func TestContender_WakesIfPredecessorIsDeletedBeforeWatch(t *testing.T) {
	for _, lost := range []bool{false, true} {
		subtestForEachKind(t, fmt.Sprintf("after a lost reply: %v", lost), exclusive, 1, func(h *harness) {
			ahead := h.createForeignContender()
			reads, watches := 1, 1
			if lost {
				h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: 1}, zktest.Cut)
				reads, watches = 2, 2 // the contender sets the watch on its znode again after the reconnect
			}
			gone := h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: reads}, func(q *zktest.Request) zktest.Verdict {
				_ = h.operator.Delete(ahead, -1)
				return zktest.Pass(q)
			})
			c := h.joinNew()
			h.advance(timeout)
			h.requireRan(gone)
			c.requireSoleHolder()
			require.Equal(h, h.contenders(), h.watched())
			require.Equal(h, watches, bubble.Watches(c.conn))
		})
	}
}

// TestContender_AccumulatesNoWatches checks that the number of watches of a contender does not grow with each
// reconnect, each event or each contender that leaves (kazoo #175, CURATOR-14, CURATOR-240, go-zookeeper #76).
// Scenario 25 of docs/traps.md.
func TestContender_AccumulatesNoWatches(t *testing.T) {
	forEachKind(t, exclusive, 3, func(h *harness) {
		conn := h.connect()
		ahead, c := h.createForeignContender(), h.join(conn)
		own := h.contenders()[1]
		watched, most := []string{ahead, own}, 2
		requireWatches := func() {
			h.Helper()
			require.ElementsMatch(h, watched, h.watched())
			require.LessOrEqual(h, bubble.Watches(conn), most)
		}
		requireWatches()
		most = 12 // the contender sets the watch on its znode again after each reconnect, up to a limit of channels
		for i := range 20 {
			h.set(ahead, fmt.Sprint(i))
			requireWatches()
			h.drop(conn)
			h.advance(timeout / 5)
			requireWatches()
		}
		c.requireWaits()
		// Contenders that join behind the contender and leave again leave one watch in total.
		watched, most = append(watched, own), most+1
		for range 10 {
			other := h.join(conn)
			other.requireWaits()
			other.giveUp()
			h.advance(0)
			requireWatches()
		}
		h.remove(ahead)
		h.advance(0)
		c.requireTurn()
		c.requireLeaves()
		require.Empty(h, h.watched())
		require.Zero(h, bubble.Watches(conn))
	})
}

// TestContender_SetsWatchAgainAfterUnrelatedEvent checks that a contender sets its watch again after an unrelated
// event has consumed the watch (CURATOR-258, CURATOR-329).
// Scenario 26 of docs/traps.md.
func TestContender_SetsWatchAgainAfterUnrelatedEvent(t *testing.T) {
	forEachKind(t, []kind{election, prefix, mutex}, 1, func(h *harness) {
		ahead, c, last := h.createForeignContender(), h.joinNew(), h.joinNew()
		znodes := append(h.contenders(), dir)
		watched := h.watched()
		for i := range 5 {
			for _, path := range znodes {
				h.set(path, fmt.Sprint(i))
				require.ElementsMatch(h, watched, h.watched())
			}
			_, err := h.operator.SetACL(ahead, openACL, -1)
			require.NoError(h, err)
		}
		h.advance(timeout)
		c.requireWaits()
		h.remove(ahead)
		h.advance(0)
		g := c.requireTurn()
		h.set(znodes[1], "data of the holder")
		h.advance(timeout)
		require.NoError(h, g.Err())
		last.requireWaits()
		h.remove(znodes[1])
		h.advance(moment)
		c.requireLeftBecause(leaderelection.ErrDeleted)
		last.requireTurn()
	})
}

// TestContender_NoticesChangesWhileDisconnected checks that a contender notices a change that happens while it has
// no connection, even if its watches are lost (CURATOR-623, CURATOR-311, CURATOR-97).
// Scenario 27 of docs/traps.md.
func TestContender_NoticesChangesWhileDisconnected(t *testing.T) {
	subtestForEachKind(t, "the predecessors are deleted", all, 3, func(h *harness) {
		first, second := h.createForeignContender(), h.createForeignContender()
		c := h.joinNew()
		for _, gone := range []string{second, first} {
			c.requireWaits()
			h.disconnect(c.conn)
			h.remove(gone)
			h.advance(moment) // an instant between two polls of the connection's monitor
			h.reconnect()
		}
		c.requireSoleHolder()
	})
	for _, lost := range []string{"predecessor", "own znode, waiting", "own znode, during its turn"} {
		// If the server rejects the request by which the client library sets watches again, the library does not
		// repeat the request.
		for name, rejected := range map[string]bool{"": false, ", not set again": true} {
			subtestForEachKind(t, lost+name, exclusive, 3, func(h *harness) {
				first, second := h.createForeignContender(), h.createForeignContender()
				c := h.joinNew()
				gone := h.contenders()[2]
				switch lost {
				case "predecessor":
					gone = second
				case "own znode, during its turn":
					h.remove(second)
					h.remove(first)
					h.advance(0)
					c.requireTurn()
				}
				h.advance(moment)
				if rejected {
					failed := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zktest.Code(-99)))
					defer h.requireRan(failed)
					h.allowWatches = true // the client library has lost the watches, so the contender cannot remove them
				}
				h.disconnect(c.conn)
				h.remove(gone)
				h.advance(moment)
				h.reconnect()
				h.advance(timeout)
				if gone != second {
					c.requireLeftBecause(leaderelection.ErrDeleted)
					return
				}
				c.requireWaits()
				h.remove(first)
				h.advance(moment)
				c.requireSoleHolder()
			})
		}
	}
}

// TestDeletion_WakesOnlyNextTwoContenders checks that the deletion of a znode wakes only the next two contenders.
// It would wake all contenders if they watched the first znode or the parent, as the page of recipes of ZooKeeper
// warns.
// Scenario 52 of docs/traps.md.
func TestDeletion_WakesOnlyNextTwoContenders(t *testing.T) {
	forEachKind(t, exclusive, 1, func(h *harness) {
		const count = 20
		var line []*client
		for range count {
			line = append(line, h.joinNew())
		}
		h.advance(timeout)
		znodes := h.contenders()
		var want []string
		for i, path := range znodes { // the watch of the contender itself, and the watches of the next two contenders
			for range znodes[i:min(i+3, count)] {
				want = append(want, path)
			}
		}
		require.ElementsMatch(h, want, h.watched())
		for _, gone := range []int{count / 2, 0} { // a contender in the middle, and the first one
			h.srv.ResetLog()
			if gone == 0 {
				line[0].requireLeaves()
			} else {
				line[gone].giveUp()
				h.advance(0)
			}
			woken := []int64{line[gone].conn.SessionID(), line[gone+1].conn.SessionID(), line[gone+2].conn.SessionID()}
			require.ElementsMatch(h, woken, h.srv.Log().Woken(znodes[gone]))
			for _, e := range h.srv.Log() {
				if e.Op == zktest.OpGetChildren2 || e.Op == zktest.OpNotification {
					require.Contains(h, woken, e.Session)
				}
			}
		}
		line[1].requireTurn()
	})
}
