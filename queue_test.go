package leaderelection_test

import (
	"fmt"
	"log/slog"
	"math"
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

// TestOrder_SequenceNumbers fails if candidates are ordered by their names and not by their
// sequence numbers: a protected name begins with random digits, and a number that has overflowed
// with a minus sign. Since 3.6 the counter of a server stays at its limit: see scenario 32.
func TestOrder_SequenceNumbers(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(node, math.MaxInt32-4))
		var all []*candidate
		for range 4 {
			all = append(all, h.join(h.connect()))
		}
		// A server before 3.6 continues with negative numbers.
		others := []string{h.createContender()}
		require.Regexp(h, "-2147483647$", others[0])
		require.NoError(h, h.srv.SetSequence(node, math.MinInt32))
		others = append(others, h.createContender(), h.createContender())
		require.Regexp(h, "--2147483648$", others[1])

		listed, err := leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		for i, c := range listed {
			if i < len(all) {
				require.Equal(h, all[i].ID(), c.ID)
			} else {
				require.Equal(h, others[i-len(all)], c.ID)
			}
		}
		require.NoError(h, all[2].Resign())
		h.advance(0)
		all[3].requireFollows(all[1])
		all = append(all[:2], all[3:]...)
		for i, c := range all {
			c.requireLeads()
			for _, other := range all[i+1:] {
				require.NotContains(h, other.roles(), leaderelection.Leader)
			}
			require.NoError(h, c.Resign())
			h.advance(0)
		}
		require.Equal(h, others[0], h.firstCandidate().ID)
	})
}

// TestOrder_OtherChildren fails if a child that is not a candidate prevents candidates from
// leading, ends the election, or is deleted.
func TestOrder_OtherChildren(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		foreign := []string{"!", "0000000000", "ABANDONED", "DONE-not", "NOT-DONE", "config", "le_x", "le_00000000000", "_c_", "_c_short-latch-"}
		for _, name := range foreign {
			_, err := h.operator.Create(path.Join(node, name), nil, 0, openACL)
			require.NoError(h, err)
		}
		leader, follower := h.join(h.connect()), h.join(h.connect())
		leader.requireLeads()
		follower.requireFollows(leader)
		all, err := leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, 2)
		// A child that is created and deleted later is ignored.
		late := path.Join(node, "a-DONE")
		_, err = h.operator.Create(late, nil, 0, openACL)
		require.NoError(h, err)
		require.NoError(h, h.operator.Delete(late, -1))
		leader.requireQuiet(timeout)
		follower.requireQuiet(timeout)
		require.NoError(h, leader.Resign())
		h.advance(0)
		follower.requireLeads()

		// The election is not deleted with them.
		require.ErrorIs(h, follower.EndElection(), leaderelection.ErrForeignChildren)
		follower.requireLeads()
		h.requireChildren(append(foreign, names(follower)...)...)
	})
}

// TestOrder_PersistentChildren fails if a persistent child is taken for a candidate because of its
// name, or an ephemeral child whose name ends in ten digits is not.
func TestOrder_PersistentChildren(t *testing.T) {
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
			require.Equal(h, ahead, c.newest().NowFollowing)
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

// TestOrder_SameSequenceNumber fails if a candidate continues although another ephemeral child has
// the same number, so that their order is unknown.
func TestOrder_SameSequenceNumber(t *testing.T) {
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

		// It is not ambiguous if one of them is persistent.
		h.remove(twin)
		h.create(twin)
		require.NoError(h, h.srv.SetSequence(node, 0))
		again := h.join(conn)
		again.requireLeads()
	})
}

// packetGap is the pause between the packets that a client receives in these tests.
const packetGap = time.Millisecond

// deleteTogether deletes the znodes of two candidates in one transaction, the second one first, as
// DeleteElection does.
func (h *harness) deleteTogether(second, first *candidate) {
	_, err := h.operator.Multi(
		&zk.DeleteRequest{Path: second.ID(), Version: -1},
		&zk.DeleteRequest{Path: first.ID(), Version: -1},
	)
	assert.NoError(h, err)
}

// TestSuccession_OwnZnodeDeletedWhileDisconnected fails if a candidate becomes the leader because
// it is notified, after a reconnect, that its predecessor was deleted, before it is notified that
// its znode was deleted. It must list again after a reconnect.
func TestSuccession_OwnZnodeDeletedWhileDisconnected(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn, pause := h.connectSlowly()
		leader, second := h.join(h.connect()), h.join(conn)
		second.requireFollows(leader)
		h.advance(time.Second + 60*time.Millisecond) // between two polls of the connection's monitor
		pause.set(packetGap)
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.deleteTogether(second, leader)
			return zktest.Pass(q)
		})
		h.srv.DropConnections(conn.SessionID())
		h.advance(100 * packetGap)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrDeleted)
		require.NotContains(h, second.roles(), leaderelection.Leader)
		require.Equal(h, []string{leader.ID(), second.ID()}, h.deletionsDelivered(conn.SessionID()), "the test does not test this")
	})
}

// deletionsDelivered returns the paths of the deleted znodes of which a session was notified, in
// order.
func (h *harness) deletionsDelivered(session int64) (paths []string) {
	for _, e := range h.requests(zktest.OpNotification, session) {
		if e.Event == zk.EventNodeDeleted {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// TestSuccession_PredecessorOfSameSession fails if a candidate becomes the leader because its
// predecessor was deleted, although both belong to a session that has ended. The server deletes
// the znodes in the order of the queue.
func TestSuccession_PredecessorOfSameSession(t *testing.T) {
	for name, end := range map[string]struct {
		do        func(h *harness, conn *zk.Conn)
		packetGap time.Duration
	}{
		"expires":       {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, packetGap},
		"expires, slow": {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, 20 * packetGap},
		"is closed":     {func(_ *harness, conn *zk.Conn) { conn.Close() }, packetGap},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
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
				require.NotContains(h, second.roles(), leaderelection.Leader)
				third.requireLeads()
				require.Equal(h, leader.ID(), h.deletionsDelivered(session)[0], "the test does not test this")
			})
		})
	}
}

// CURATOR-696: the candidate's znode is deleted together with its predecessor, and the candidate
// is notified of both at the same time.
func TestTrap11_OwnZnodeDeletedWithLeader(t *testing.T) {
	for range 20 { // the order in which the candidate receives the notifications is random
		withServers(t, 1, func(h *harness) {
			ahead, second := h.createContender(), h.createContender()
			hold, release := h.hold()
			var busy, led atomic.Bool
			c := h.join(h.connect(), onStatus(func(s leaderelection.Status) {
				led.Store(led.Load() || s.Role == leaderelection.Leader)
				if busy.Load() {
					hold(nil)
				}
			}))
			busy.Store(true) // it is blocked while it publishes the next status
			h.remove(second)
			h.advance(timeout) // it has a lease, and could become the leader without a request
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
			require.Equal(h, ahead, c.received()[1].NowFollowing)
		})
	}
}

// createManyCandidates makes the list of candidates longer than the connections of a harness accept.
func (h *harness) createManyCandidates() {
	conn := h.connectUnlimited()
	for range 1200 {
		_, err := conn.Create(path.Join(node, "_c_00000000-0000-4000-8000-000000000000-latch-"), nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
}

// Netflix/curator #76: a candidate that cannot receive the list of candidates must end with an
// error, and its znode must not block others.
func TestTrap37_TooManyCandidates(t *testing.T) {
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

// Netflix/curator #76: a leader whose name is longer than a connection accepts must still be
// reported.
func TestTrap37_NameTooLarge(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		big := h.connectUnlimited()
		id, err := big.Create(node+"/n_", []byte(strings.Repeat("x", 100<<10)), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		conn := h.connect()
		all, err := leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Len(h, all, 1)
		leader := all[0]
		require.Equal(h, leaderelection.CandidateInfo{ID: id, Token: h.stat(id).Czxid}, leader)
		observed, err := leaderelection.Observe(h.Context(), conn, node)
		require.NoError(h, err)
		require.Equal(h, leader, *(<-observed).Leader)
		next := h.join(conn)
		h.advance(timeout)
		require.Equal(h, id, next.newest().NowFollowing)
		h.remove(id)
		h.advance(0)
		next.requireLeads()
		h.advance(timeout)
		require.Equal(h, next.ID(), (<-observed).Leader.ID)
	})
}

// Netflix/curator #76, CURATOR-203, CURATOR-690: a request that is longer than a server accepts
// breaks the connection, and is retried. The check of all leaders of one connection is one
// transaction, whose length must be limited.
func TestTrap37_ManyLeadersOnOneConnection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var all []*candidate
		for i := range 120 {
			path := fmt.Sprintf("/%03d-%s", i, strings.Repeat("x", 3000))
			e, err := leaderelection.NewElection(conn, path, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			all = append(all, h.startElection(e, conn))
		}
		h.advance(timeout)
		for _, c := range all {
			require.NoError(h, c.requireLeads().Err())
			require.Len(h, c.received(), 1)
		}
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(300<<10))
}

// CURATOR-690: a create with a long name breaks the connection. It must be rejected before it is
// sent.
func TestTrap37_LongClientName(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		name := strings.Repeat("x", 64<<10)
		_, err := leaderelection.NewElection(conn, node, leaderelection.WithName(name+"x"))
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		c := h.join(conn, leaderelection.WithName(name))
		next := h.join(h.connectUnlimited(), leaderelection.WithName(name))
		c.requireLeads()
		next.requireFollows(c)
		next.resign() // it writes the data of its predecessor
		c.resign()
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(66<<10))
}

// CURATOR-690: candidates join, watch and delete a queue of thousands by requests of a few
// kilobytes, and by replies of hundreds.
func TestTrap37_LongQueue(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		const count = 2000
		ahead := ""
		for range count {
			ahead = h.createContender()
		}
		conn := h.connectUnlimited()
		c := h.join(conn)
		require.Equal(h, ahead, c.newest().NowFollowing)
		all, err := leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Len(h, all, count+1)
		require.NoError(h, leaderelection.DeleteElection(conn, node))
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
	}, zktest.WithMaxPacket(32<<10))
}

// TestJoin_CreateReplyLost fails if the candidate does not use the znode whose create was applied
// without a reply. A second znode would be behind those of candidates that have joined in between.
func TestJoin_CreateReplyLost(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn := h.connect()
		session := conn.SessionID()
		var created string
		var between *candidate
		other := h.connect()
		h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			created = q.Created
			return zktest.Cut(q)
		})
		// Another candidate joins before this one reconnects.
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			between = h.joinAsync(other)
			time.Sleep(time.Millisecond)
			return zktest.Pass(q)
		})
		c := h.joinAsync(conn)
		h.advance(100 * time.Millisecond)
		require.Equal(h, created, c.ID())
		c.requireLeads()
		between.requireFollows(c)
		require.Len(h, h.requests(zktest.OpCreate, session), 1)
		require.Len(h, h.childNames(), 2)
	})
}

// A znode of the same session with other data does not belong to the candidate.
func TestTrap02_OtherData_NamePrefix(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("another purpose of the program"), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		c.resign()
		h.requireIDs(other)
	})
}

// If several candidates use one connection and one create loses its reply, each candidate still
// uses the znode that it has created.
func TestTrap01_SeveralCandidates_NamePrefix(t *testing.T) {
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
				if c.newest().Role == leaderelection.Leader {
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
