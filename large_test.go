package leaderelection_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

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
