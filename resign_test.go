package leaderelection_test

import (
	"flag"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// electionCount is the number of elections in TestResignRequested_LeavesNoWatches.
var electionCount = flag.Int("elections", 200, "number of elections that TestResignRequested_LeavesNoWatches joins")

// requireNoWatches requires that neither the server nor the client library stores a watch of conn.
func (h *harness) requireNoWatches(conn *zk.Conn) {
	h.Helper()
	for _, w := range h.srv.Watches() {
		require.NotEqual(h, conn.SessionID(), w.Session, w.Path)
	}
	require.Zero(h, bubble.Watches(conn))
}

// TestResignRequested_LeavesNoWatches checks that no watch of an election remains after its candidates have
// left, one after another or at the same time, even if ElectLeader was never called.
func TestResignRequested_LeavesNoWatches(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		for i := range *electionCount {
			node := fmt.Sprintf("%s/%d", node, i)
			h.create(node)
			two := []*candidate{h.newCandidate(node, conn), h.newCandidate(node, conn)}
			var requested []<-chan struct{}
			for _, c := range two {
				requested = append(requested, c.ResignRequested())
				if i%3 != 0 {
					c.start()
				}
			}
			h.advance(0)
			var wg sync.WaitGroup
			for _, c := range two {
				wg.Go(func() { assert.NoError(h, c.Resign()) })
				if i%2 == 0 {
					wg.Wait()
				}
			}
			wg.Wait()
			for _, c := range requested {
				require.Empty(h, c, "a request was received")
			}
			h.candidates = nil
		}
		h.advance(0)
		h.requireNoWatches(conn)
	})
}

// TestResignRequested_RemovesWatchOfElectionNode checks that a candidate that has left removes its watch on the
// election node, and that the removal neither changes the data of another application nor makes each of many
// candidates send a request.
func TestResignRequested_RemovesWatchOfElectionNode(t *testing.T) {
	// join returns n candidates on separate connections that can receive requests.
	join := func(h *harness, n int) (all []*candidate) {
		for range n {
			c := h.join(h.connect())
			c.ResignRequested()
			h.advance(0)
			all = append(all, c)
		}
		return all
	}
	writes := func(h *harness) int { return h.srv.Log().Count(zktest.OpSetData) }

	runWithServers(t, "many candidates", 1, func(h *harness) {
		const many = 14 // a candidate removes its watch only if at most ten others remain
		all := join(h, many)
		for i, c := range all {
			before := h.srv.Log().Count(zktest.OpGetData)
			c.resign()
			require.Equal(h, max(0, i-(many-12)), writes(h), i)
			reads := h.srv.Log().Count(zktest.OpGetData) - before
			require.LessOrEqual(h, reads, 13, "departure of candidate %d", i)
		}
		for _, c := range all {
			h.requireNoWatches(c.conn)
		}
	})
	runWithServers(t, "disconnected", 1, func(h *harness) {
		c := join(h, 1)[0]
		h.disconnect(c.conn)
		bubble.RequireDuration(h, confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
		h.reconnect()
		h.advance(timeout)
		h.requireNoWatches(c.conn)
	})
	runWithServers(t, "watch not set again", 1, func(h *harness) {
		c := join(h, 1)[0]
		h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: c.conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
		h.srv.DropConnections(c.conn.SessionID())
		c.resign()
		// The client library cannot know that the server has no watches until it reconnects.
		h.srv.DropConnections(c.conn.SessionID())
		h.advance(timeout)
		h.requireNoWatches(c.conn)
	})
	runWithServers(t, "request received", 1, func(h *harness) {
		c := join(h, 1)[0]
		data := record.FormatRequests([]string{path.Base(c.ID())})
		_, err := h.operator.Set(node, data, -1)
		require.NoError(h, err)
		<-c.ResignRequested()
		c.resign()
		h.requireNoWatches(c.conn)
		left, _, err := h.operator.Get(node)
		require.NoError(h, err)
		require.Equal(h, data, left)
	})
	runWithServers(t, "write is lost", 1, func(h *harness) {
		c := join(h, 1)[0]
		h.srv.Before(zktest.Match{Op: zktest.OpSetData, Nth: 1}, zktest.Cut)
		require.NoError(h, c.Resign())
		h.advance(timeout)
		h.requireNoWatches(c.conn)
	})
	runWithServers(t, "other data", 1, func(h *harness) {
		c := join(h, 1)[0]
		_, err := h.operator.Set(node, []byte("precious"), -1)
		require.NoError(h, err)
		h.advance(0)
		c.resign()
		require.Equal(h, 1, writes(h))
	})
	runWithServers(t, "no permission", 1, func(h *harness) {
		_, err := h.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
		require.NoError(h, err)
		c := join(h, 1)[0]
		c.resign()
		require.Equal(h, []string{node}, h.watchedPaths())
	})
}

// TestResignRequested_IgnoresDeletionOfElection checks that the deletion of the election does not close the
// channel that ResignRequested returns.
func TestResignRequested_IgnoresDeletionOfElection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c := h.join(h.connect())
		requested := c.ResignRequested()
		h.advance(0)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(time.Second)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		select {
		case <-requested:
			require.Fail(h, "a request was received")
		default:
		}
	})
}

// TestResignRequested_NoticesRequestAfterMissingNode checks that a candidate notices a request to resign after
// a time in which the election node did not exist.
func TestResignRequested_NoticesRequestAfterMissingNode(t *testing.T) {
	for name, lose := range map[string]func(h *harness, c *candidate){
		"ZooKeeper starts later": func(h *harness, c *candidate) {
			h.srv.Restart(zktest.LoseTree)
			c.start()
		},
		"ZooKeeper loses the node": func(h *harness, c *candidate) {
			h.srv.Restart(zktest.KeepTree)
			c.start()
			h.advance(time.Minute)
			c.requireLeads()
			h.srv.Restart(zktest.LoseTree)
		},
	} {
		runWithServers(t, name, 1, func(h *harness) {
			h.terms.overlap = true // tokens start again at small values, so verify would find overlapping leaderships
			h.srv.Stop()
			conn := h.dial()
			c := h.newCandidate(appNode, conn, permanentOptions...)
			requested := c.ResignRequested()
			lose(h, c)
			h.advance(time.Minute)
			c.requireLeads()
			select {
			case <-requested:
				require.Fail(h, "nothing was requested")
			default:
			}
			reads := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpGetData && e.Path == appNode })
			require.Less(h, len(reads), 10)
			_, err := conn.Set(appNode, record.FormatRequests(namesOf(c)), -1)
			require.NoError(h, err)
			h.advance(0)
			receive(h, requested)
		})
	}
}
