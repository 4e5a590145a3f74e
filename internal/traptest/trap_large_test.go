package traptest

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

// crowd makes the list of candidates larger than the connections of a world receive.
func (h *harness) crowd() *zk.Conn {
	conn := h.connectUnlimited()
	for range 1200 {
		_, err := conn.Create(path.Join(node, "_c_00000000-0000-4000-8000-000000000000-latch-"), nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
	return conn
}

// Netflix/curator #76: a candidate that cannot receive the list of candidates ends with an error, and its znode
// does not keep others waiting.
func TestTrap37_TooManyCandidates(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.crowd()
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
			_, err = leaderelection.Candidates(conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
			_, _, err = leaderelection.CurrentLeader(conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
			_, err = leaderelection.Observe(h.Context(), conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
			err = leaderelection.DeleteElection(conn, node)
			require.ErrorIs(h, err, leaderelection.ErrTooLarge)
		}
		require.Len(h, h.candidateIDs(), before)
	})
}

// A name that is larger than a connection receives does not hide that its candidate leads.
func TestTrap37_NameTooLarge(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		big := h.connectUnlimited()
		id, err := big.Create(node+"/n_", []byte(strings.Repeat("x", 100<<10)), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		conn := h.connect()
		leader, found, err := leaderelection.CurrentLeader(conn, node)
		require.NoError(h, err)
		require.True(h, found)
		require.Equal(h, leaderelection.CandidateInfo{ID: id, Token: h.stat(id).Czxid}, leader)
		observed, err := leaderelection.Observe(h.Context(), conn, node)
		require.NoError(h, err)
		require.Equal(h, leader, *(<-observed).Leader)
		c := h.join(conn)
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrTooLarge)
		require.ErrorContains(h, c.requireOver(), fmt.Sprint("the data of ", id))

		next := h.join(h.connectUnlimited())
		require.Equal(h, id, next.newest().NowFollowing)
		h.remove(id)
		h.advance(0)
		next.requireLeads()
		h.advance(timeout)
		require.Equal(h, next.ID(), (<-observed).Leader.ID)
	})
}
