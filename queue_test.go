package leaderelection_test

import (
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestElectLeader_IgnoresPersistentChildren checks that a candidate ignores persistent children that are named
// like candidates, and follows an ephemeral child whose name ends in ten digits.
func TestElectLeader_IgnoresPersistentChildren(t *testing.T) {
	for _, names := range [][]leaderelection.Option{nil, {leaderelection.WithNamePrefix("n_")}, {leaderelection.WithNamePrefix("")}} {
		withServers(t, 1, func(h *harness) {
			persistent := []string{"n_0000000000", "0000000001", "config-0000000002"}
			for _, name := range persistent {
				h.create(node + "/" + name)
			}
			require.NoError(h, h.srv.SetSequence(node, 10))
			ahead, err := h.operator.Create(node+"/worker-", nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
			require.NoError(h, err)
			var log strings.Builder
			logger := leaderelection.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
			c := h.join(h.connect(), append(names, logger)...)
			next := h.join(h.connect(), names...)
			require.Equal(h, ahead, c.newestStatus().NowFollowing)
			next.requireFollows(c)
			all, err := leaderelection.Candidates(h.Context(), h.operator, node)
			require.NoError(h, err)
			require.Len(h, all, 3)
			require.Equal(h, ahead, all[0].ID)

			h.remove(ahead)
			h.advance(0)
			c.requireLeads()
			warning := regexp.MustCompile(`level=WARN msg="ignoring a child that is named like a candidate but is not ephemeral" .*path=` + node + `/(\S+) children=(\d)`)
			ignored := 0
			for _, w := range warning.FindAllStringSubmatch(log.String(), -1) {
				require.Contains(h, persistent, w[1])
				n, _ := strconv.Atoi(w[2])
				ignored += n
			}
			require.Equal(h, len(persistent), ignored)
			require.Equal(h, c.ID(), h.firstCandidate().ID)
			require.ErrorIs(h, leaderelection.DeleteElection(h.operator, node), leaderelection.ErrForeignChildren)
			c.requireLeads()
			c.resign()
			next.requireLeads()
		})
	}
}

// TestElectLeader_EndsIfSequenceNumberIsNotUnique checks that a candidate ends if another ephemeral child has
// the same sequence number, because the order of the two is unknown.
func TestElectLeader_EndsIfSequenceNumberIsNotUnique(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		twin := node + "/n_0000000000"
		_, err := h.operator.Create(twin, nil, zk.FlagEphemeral, openACL)
		require.NoError(h, err)
		require.NoError(h, h.srv.SetSequence(node, 0))
		conn := h.connect()
		c := h.join(conn)
		err = c.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrForeignChildren)
		require.ErrorContains(h, err, c.ID())
		require.ErrorContains(h, err, twin)
		h.requireIDs(twin)

		// The order is not ambiguous if one of the two children is persistent.
		h.remove(twin)
		h.create(twin)
		require.NoError(h, h.srv.SetSequence(node, 0))
		again := h.join(conn)
		again.requireLeads()

		// DeleteElection does not delete a child that is not named like a candidate.
		h.remove(twin)
		h.create(node + "/config")
		require.ErrorIs(h, again.EndElection(), leaderelection.ErrForeignChildren)
		again.requireLeads()
		h.requireChildren("config", namesOf(again)[0])
	})
}

// packetGap is the pause between the packets that a client receives in these tests.
const packetGap = time.Millisecond

// deletionsDelivered returns the paths of the deleted znodes in the notifications to a session, in order.
func (h *harness) deletionsDelivered(session int64) (paths []string) {
	for _, e := range h.requests(zktest.OpNotification, session) {
		if e.Event == zk.EventNodeDeleted {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// TestElectLeader_DoesNotLeadAfterEndOfSharedSession checks that a candidate does not become the leader if its
// predecessor was deleted by the end of a session to which both belong. The server deletes their znodes in the
// order of the queue.
func TestElectLeader_DoesNotLeadAfterEndOfSharedSession(t *testing.T) {
	for name, end := range map[string]struct {
		do        func(h *harness, conn *zk.Conn)
		packetGap time.Duration
	}{
		"expires":       {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, packetGap},
		"expires, slow": {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, 20 * packetGap},
		"is closed":     {func(_ *harness, conn *zk.Conn) { conn.Close() }, packetGap},
	} {
		runWithServers(t, name, 1, func(h *harness) {
			conn, pause := h.connectSlowly()
			session := conn.SessionID()
			leader, second := h.join(conn), h.join(conn)
			third := h.join(h.connect())
			h.advance(time.Second)
			pause.set(end.packetGap)
			end.do(h, conn)
			h.advance(timeout)
			require.Error(h, leader.requireOver())
			require.Error(h, second.requireOver())
			require.NotContains(h, second.receivedRoles(), leaderelection.Leader)
			third.requireLeads()
			require.Equal(h, leader.ID(), h.deletionsDelivered(session)[0], "the server has not deleted the leader's znode first")
		})
	}
}

// TestElectLeader_DoesNotLeadIfDeletedWithPredecessor checks that a candidate whose znode is deleted together
// with that of its predecessor does not become the leader if it receives both notifications at the same time
// (CURATOR-696).
// Scenario 11 of docs/traps.md.
func TestElectLeader_DoesNotLeadIfDeletedWithPredecessor(t *testing.T) {
	for range 20 { // the order in which the candidate receives the notifications is random
		withServers(t, 1, func(h *harness) {
			ahead, second := h.createContender(), h.createContender()
			hold, release := bubble.Hold(h)
			var busy, led atomic.Bool
			c := h.join(h.connect(), onStatus(func(s leaderelection.Status) {
				led.Store(led.Load() || s.Role == leaderelection.Leader)
				if busy.Load() {
					hold(nil)
				}
			}))
			busy.Store(true) // makes the candidate block while it publishes the next status
			h.remove(second)
			h.advance(timeout) // the candidate has a lease, so it could become the leader without a request
			_, err := h.operator.Multi(
				&zk.DeleteRequest{Path: c.ID(), Version: -1},
				&zk.DeleteRequest{Path: ahead, Version: -1},
			)
			require.NoError(h, err)
			h.advance(0)
			release()
			h.advance(shortTime)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
			require.False(h, led.Load())
			require.Equal(h, ahead, c.receivedStatuses()[1].NowFollowing)
			require.Equal(h, second, c.receivedStatuses()[1].WasFollowing)
		})
	}
}

// createManyCandidates creates so many candidates that their list is longer than the connections of a harness
// accept.
func (h *harness) createManyCandidates() {
	conn := h.connectUnlimited()
	for range 1200 {
		_, err := conn.Create(path.Join(node, "_c_00000000-0000-4000-8000-000000000000-latch-"), nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
}

// TestElectLeader_EndsIfCandidateListIsTooLarge checks that a candidate that cannot receive the list of candidates ends
// with an error, and leaves no znode that would block other candidates (Netflix/curator #76).
// Scenario 37 of docs/traps.md.
func TestElectLeader_EndsIfCandidateListIsTooLarge(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.createManyCandidates()
		conn := h.connect()
		_, err := h.operator.Create("/other", nil, 0, openACL)
		require.NoError(h, err)
		other := h.newCandidate("/other", conn)
		other.start()
		h.advance(0)
		other.requireLeads()

		before := len(h.candidateIDs())
		h.srv.ResetLog()
		c := h.join(conn)
		h.advance(10 * timeout)
		err = c.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrTooLarge)
		require.ErrorContains(h, err, "the list of children of "+node)
		require.Len(h, h.candidateIDs(), before)
		require.LessOrEqual(h, h.srv.Log().Count(zktest.OpConnect), 4)
		other.requireLeads()

		for range 2 {
			_, err = leaderelection.Candidates(h.Context(), conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
			_, err = leaderelection.Observe(h.Context(), conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
			err = leaderelection.DeleteElection(conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
		}
		require.Len(h, h.candidateIDs(), before)
	})
}

// TestElectLeader_KeepsSharedCheckBelowPacketLimit checks that the check of all leaders on one connection,
// which is one transaction, does not become longer than a server accepts: it would break the connection again
// and again (Netflix/curator #76, CURATOR-203, CURATOR-690).
// Scenario 37 of docs/traps.md.
func TestElectLeader_KeepsSharedCheckBelowPacketLimit(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var all []*candidate
		for i := range 120 {
			path := fmt.Sprintf("/%03d-%s", i, strings.Repeat("x", 3000))
			c := h.newCandidate(path, conn, leaderelection.WithCreateNode())
			c.start()
			all = append(all, c)
		}
		h.advance(timeout)
		for _, c := range all {
			require.NoError(h, c.requireLeads().Err())
			require.Len(h, c.receivedStatuses(), 1)
		}
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(300<<10))
}

// TestWithName_RejectsTooLongName checks that NewElection rejects a name of more than 64 KiB, because a server
// would close the connection after a request with such a name (CURATOR-690).
// Scenario 37 of docs/traps.md.
func TestWithName_RejectsTooLongName(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		name := strings.Repeat("x", 64<<10)
		_, err := leaderelection.NewElection(conn, node, leaderelection.WithName(name+"x"))
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		c := h.join(conn, leaderelection.WithName(name))
		next := h.join(h.connectUnlimited(), leaderelection.WithName(name))
		c.requireLeads()
		next.requireFollows(c)
		next.resign() // to resign, next writes the data of its predecessor, which has the longest name
		c.resign()
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(66<<10))
}

// TestElection_SendsSmallRequestsInLongQueue checks that joining, listing and deleting an election of thousands
// of candidates requires no request of more than 32 KiB (CURATOR-690).
// Scenario 37 of docs/traps.md.
func TestElection_SendsSmallRequestsInLongQueue(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		const count = 2000
		ahead := ""
		for range count {
			ahead = h.createContender()
		}
		conn := h.connectUnlimited()
		c := h.join(conn)
		require.Equal(h, ahead, c.newestStatus().NowFollowing)
		all, err := leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Len(h, all, count+1)
		require.NoError(h, leaderelection.DeleteElection(conn, node))
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
	}, zktest.WithMaxPacket(32<<10))
}

// TestWithNamePrefix_DoesNotAdoptZnodeWithOtherData checks that a candidate whose create has lost its reply
// neither uses nor deletes a znode of its session that has other data.
// Scenario 2 of docs/traps.md.
func TestWithNamePrefix_DoesNotAdoptZnodeWithOtherData(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("another purpose of the program"), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		c := h.join(conn)
		bubble.RequireRun(h, lost)
		h.reconnect()
		require.Equal(h, other, c.newestStatus().NowFollowing)
		c.resign()
		h.requireIDs(other)
	})
}

// TestWithNamePrefix_DoesNotShareZnodeAfterLostReply checks that no two of several candidates on one connection
// use the same znode after a create has lost its reply.
// Scenario 1 of docs/traps.md.
func TestWithNamePrefix_DoesNotShareZnodeAfterLostReply(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		forEachLoss(t, bubble.ConnectionLost, 1, func(h *harness, l bubble.Fault) {
			h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
			conn := h.connect()
			l.Set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: nth})
			var all []*candidate
			for range 4 {
				all = append(all, h.joinAsync(conn))
			}
			h.advance(timeout)
			h.advance(timeout)
			ids := map[string]bool{}
			leaders := 0
			for _, c := range all {
				ids[c.ID()] = true
				if c.newestStatus().Role == leaderelection.Leader {
					leaders++
				}
			}
			require.Len(h, ids, 4)
			require.Len(h, h.candidateIDs(), 4)
			require.Equal(h, 1, leaders)
			for _, c := range all {
				require.NoError(h, c.Resign())
			}
			h.advance(0)
			h.requireIDs()
		})
	}
}
