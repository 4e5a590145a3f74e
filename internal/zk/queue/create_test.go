package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestContender_KeepsOneZnodeIfCreateReplyIsLost checks that a contender whose create has lost its reply does not
// leave a second znode, which would block the queue (CURATOR-45, CURATOR-79).
// Scenario 1 of docs/traps.md.
func TestContender_KeepsOneZnodeIfCreateReplyIsLost(t *testing.T) {
	forEachLoss(t, bubble.ConnectionLost, testCreateReplyLost)
}

// TestContender_KeepsOneZnodeIfSessionMovesDuringCreate checks that a contender does not conclude from the reply
// "session moved" that the server has not applied the create (ZOOKEEPER-2886).
// Scenario 10 of docs/traps.md.
func TestContender_KeepsOneZnodeIfSessionMovesDuringCreate(t *testing.T) {
	forEachLoss(t, bubble.SessionMoved, testCreateReplyLost)
}

func testCreateReplyLost(h *harness, l bubble.Fault) {
	first, conn := h.joinNew(), h.connect()
	session := conn.SessionID()
	lost := l.Set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: contenderPattern, Nth: 1})
	c := h.join(conn)
	h.advance(timeout)
	h.requireRan(lost)
	c.requireWaits()
	require.Len(h, h.contenders(), 2)
	if l.Applied {
		require.Len(h, h.created(), 2, "the znode that was created is not used")
	}
	first.requireLeaves()
	c.requireSoleHolder()
	require.Equal(h, session, conn.SessionID(), "the session has expired")
	c.requireLeaves()
	h.requireContenders()
}

// TestContender_RemovesZnodeWhenGivingUpAfterLostReply checks that a contender that gives up while the outcome of
// its create is unknown does not leave a znode (CURATOR-79, CURATOR-62).
// Scenario 1 of docs/traps.md.
func TestContender_RemovesZnodeWhenGivingUpAfterLostReply(t *testing.T) {
	forEachLoss(t, bubble.LostReplies, func(h *harness, l bubble.Fault) {
		conn := h.connect()
		session := conn.SessionID()
		lost := l.Set(h.srv, zktest.Match{Path: contenderPattern, Nth: 1})
		c := h.join(conn)
		h.requireRan(lost)
		c.giveUp()
		h.advance(2 * timeout)
		h.requireContenders()
		require.Equal(h, session, conn.SessionID(), "the session has expired")
	})
}

// TestContender_IgnoresZnodeOfOtherSession checks that a contender that searches for the znode of its unanswered
// create does not use a znode of another session, which may be about to expire (CURATOR-498).
// Scenario 2 of docs/traps.md.
func TestContender_IgnoresZnodeOfOtherSession(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		lost := h.cutAfterCreate()
		c := h.joinNew()
		h.requireRan(lost)
		created := h.contenders()
		require.Len(h, created, 1)
		h.remove(created[0])
		other := h.createSequential(created[0][len(dir)+1 : len(created[0])-10])
		h.reconnect()
		if h.hasGUIDs() {
			c.requireSoleHolder()
			require.NotEqual(h, []string{other}, h.contenders())
			return
		}
		// A znode whose name contains no GUID belongs to another contender, so it is not deleted.
		c.requireWaits()
		require.Len(h, h.contenders(), 2)
		h.remove(other)
		h.advance(0)
		c.requireSoleHolder()
	})
}

// TestContender_CreatesZnodeAgainIfSessionExpires checks that a contender whose session expires between its create
// and the search for the created znode creates a znode in the next session (CURATOR-498).
// Scenario 2 of docs/traps.md.
func TestContender_CreatesZnodeAgainIfSessionExpires(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		conn := h.connect()
		old := conn.SessionID()
		lost := h.cutAfterCreate()
		c := h.join(conn)
		h.requireRan(lost)
		require.NoError(h, h.srv.ExpireSession(old))
		h.reconnect()
		h.advance(timeout)
		require.NotEqual(h, old, conn.SessionID())
		c.requireSoleHolder()
		require.Len(h, h.created(), 2)
	})
}

// TestContender_CreatesOneZnodeAtLaggingServer checks that a contender does not create a second znode if a server
// that lags behind does not show the first znode to the contender yet (ZOOKEEPER-1675).
// Scenario 3 of docs/traps.md.
func TestContender_CreatesOneZnodeAtLaggingServer(t *testing.T) {
	forEachKind(t, all, 3, func(h *harness) {
		lagging, conn := h.ensemble.Server(1), h.connect()
		c := h.prepare(conn)
		lagging.Lag()
		lost := h.srv.After(zktest.Match{Path: contenderPattern, Nth: 1}, zktest.Cut)
		c.start()
		h.advance(0)
		h.requireRan(lost)
		require.Equal(h, lagging.Name(), conn.Server())
		require.NotContains(h, lagging.Tree(), h.created()[0][len(dir)+1:])
		h.advance(timeout / 4)
		c.requireWaits() // the outcome of the create is not known yet
		lagging.Heal()
		h.advance(0)
		c.requireSoleHolder()
		require.Len(h, h.created(), 1)
	})
}

// TestContender_DoesNotWaitForItsOwnLateZnode checks that a contender does not wait for its own first znode if its
// search has not found this znode, the contender has created a second znode, and the first znode appears afterwards
// with a smaller sequence number (ZOOKEEPER-3600).
// Scenario 3 of docs/traps.md.
func TestContender_DoesNotWaitForItsOwnLateZnode(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		conn := h.connect()
		ahead := h.createForeignContender()
		h.remove(h.createForeignContender()) // its sequence number, 1, is the number of the late znode below
		lost := h.srv.Before(zktest.Match{Path: contenderPattern, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireRan(lost)
		h.reconnect()
		c.requireWaits()
		own := h.contenders()[1]

		first := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := func(number string) {
			_, err := conn.Create(first+number, []byte(h.data), zk.FlagEphemeral, openACL)
			require.NoError(h, err)
		}
		late("0000000001")
		h.requireContenders(ahead, first+"0000000001", own)
		h.set(ahead, "makes the contender list the queue")
		if h.name != semaphore.name { // a semaphore does not list the queue before it could be admitted
			h.requireContenders(ahead, own)
		}
		c.requireWaits()

		h.remove(ahead)
		h.advance(0)
		c.requireSoleHolder()
		// When the contender leaves, it also deletes a znode that appears even later.
		late("0000000000")
		c.requireLeaves()
		h.requireContenders()
	})
}

// TestContender_UsesNewGUIDForEachCreate checks that no two creates of a contender use the same name, which is
// possible if several creates use one GUID, as in the Lock of kazoo.
// Scenario 4 of docs/traps.md.
func TestContender_UsesNewGUIDForEachCreate(t *testing.T) {
	forEachKind(t, []kind{election, mutex, semaphore}, 3, func(h *harness) {
		conn := h.connect()
		first := h.srv.Before(zktest.Match{Path: contenderPattern, Nth: 1}, zktest.Cut)
		second := h.srv.Before(zktest.Match{Path: contenderPattern, Nth: 2}, zktest.Cut)
		for range 3 {
			c := h.join(conn)
			h.advance(timeout)
			c.requireSoleHolder()
			h.expire(conn)
			h.advance(timeout)
			require.Error(h, c.newest().Err())
		}
		h.requireRan(first, second)
		names := map[string]bool{}
		for _, e := range h.srv.Log() {
			if e.Op == zktest.OpCreate && strings.HasPrefix(e.Path, dir+"/_c_") || bubble.IsContenderCreate(e, dir) {
				require.False(h, names[e.Path], "%s was used before", e.Path)
				names[e.Path] = true
			}
		}
		require.Len(h, names, 5, "two that were lost, and one for each session")
	})
}

// TestContender_RemovesZnodeWhenGivingUpDuringCreate checks that a contender that gives up while its create is in
// flight does not leave a znode (CURATOR-18, CURATOR-3).
// Scenario 40 of docs/traps.md.
func TestContender_RemovesZnodeWhenGivingUpDuringCreate(t *testing.T) {
	subtestForEachKind(t, "the reply is late", all, 1, func(h *harness) {
		hook, open := bubble.Hold(h)
		h.srv.After(zktest.Match{Path: contenderPattern, Nth: 1}, hook)
		testGivesUpDuringCreate(h, open)
	})
	forEachLoss(t, bubble.ConnectionLost[2:], func(h *harness, l bubble.Fault) {
		l.Set(h.srv, zktest.Match{Path: contenderPattern, Nth: 1})
		testGivesUpDuringCreate(h, func() {})
	})
	subtestForEachKind(t, "the request is late", all, 1, func(h *harness) {
		c := h.prepare(h.connect())
		h.srv.Delay(zktest.ToServer, time.Second, c.conn.SessionID())
		c.start()
		h.advance(0)
		c.giveUp()
		h.advance(4 * time.Second)
		h.srv.Heal()
		h.advance(time.Second)
		h.requireContenders()
	})
}

// testGivesUpDuringCreate tests a contender that gives up after the server has applied its create, before it has
// received the reply. reply delivers the reply.
func testGivesUpDuringCreate(h *harness, reply func()) {
	conn := h.connect()
	session := conn.SessionID()
	c := h.join(conn)
	require.Len(h, h.contenders(), 1)
	c.giveUp()
	h.advance(1500 * time.Millisecond)
	require.Nil(h, c.newest())
	require.Len(h, h.contenders(), 1, "the outcome is not known yet")
	reply()
	h.advance(timeout)
	require.NoError(h, c.leave(), "the servers have not confirmed the removal")
	h.requireContenders()
	require.Equal(h, session, conn.SessionID(), "the session has expired")
}
