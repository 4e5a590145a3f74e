package traptest

import (
	"math"
	"path"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// C12: candidates were sorted by their names, in which a protected name begins
// with something random, and a number that has overflowed with a minus sign:
// two led. (Since 3.6 a server's counter stays at its end: see trap 32.)
func TestC12_Order(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(node, math.MaxInt32-4))
		var all []*candidate
		for range 4 {
			all = append(all, h.join(h.connect()))
		}
		// A server before 3.6 goes on like this.
		others := []string{h.createContender()}
		require.Regexp(h, "-2147483647$", others[0])
		require.NoError(h, h.srv.SetSequence(node, math.MinInt32))
		others = append(others, h.createContender(), h.createContender())
		require.Regexp(h, "--2147483648$", others[1])

		listed, err := leaderelection.Candidates(h.operator, node)
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
		first, found, err := leaderelection.CurrentLeader(h.operator, node)
		require.NoError(h, err)
		require.True(h, found)
		require.Equal(h, others[0], first.ID)
	})
}

// C12: names of every kind stand in one line, by their numbers alone.
func TestC12_NamesOfEveryKind(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var ahead []string
		for _, prefix := range []string{"le_", "_c_ffffffff-ffff-4fff-bfff-ffffffffffff-latch-", "ffffffffffffffffffffffffffffffff__lock__", "lock-", "_c_00000000-0000-4000-8000-000000000000-lock-", "00000000000000000000000000000000__lock__", "latch-"} {
			id, err := h.operator.Create(path.Join(node, prefix), nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
			require.NoError(h, err)
			ahead = append(ahead, id)
		}
		c := h.join(h.connect())
		kazoo := h.join(h.connect(), leaderelection.WithNaming(leaderelection.Kazoo))
		kazoo.requireFollows(c)
		for i := len(ahead) - 1; i >= 0; i-- {
			require.Equal(h, ahead[i], c.newest().NowFollowing)
			require.NoError(h, h.operator.Delete(ahead[i], -1))
			h.advance(0)
		}
		c.requireLeads()
		require.NoError(h, c.Resign())
		h.advance(0)
		kazoo.requireLeads()
	})
}
