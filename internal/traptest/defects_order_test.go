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
	play(t, 1, func(w *world) {
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-4))
		var all []*candidate
		for range 4 {
			all = append(all, w.enlist(w.connect()))
		}
		// A server before 3.6 goes on like this.
		others := []string{w.contender()}
		require.Regexp(w, "-2147483647$", others[0])
		require.NoError(w, w.srv.SetSequence(node, math.MinInt32))
		others = append(others, w.contender(), w.contender())
		require.Regexp(w, "--2147483648$", others[1])

		listed, err := leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		for i, c := range listed {
			if i < len(all) {
				require.Equal(w, all[i].ID(), c.ID)
			} else {
				require.Equal(w, others[i-len(all)], c.ID)
			}
		}
		require.NoError(w, all[2].Resign())
		w.pass(0)
		all[3].follows(all[1])
		all = append(all[:2], all[3:]...)
		for i, c := range all {
			c.leads()
			for _, other := range all[i+1:] {
				require.NotContains(w, other.roles(), leaderelection.Leader)
			}
			require.NoError(w, c.Resign())
			w.pass(0)
		}
		first, found, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		require.True(w, found)
		require.Equal(w, others[0], first.ID)
	})
}

// C12: names of every kind stand in one line, by their numbers alone.
func TestC12_NamesOfEveryKind(t *testing.T) {
	play(t, 1, func(w *world) {
		var ahead []string
		for _, prefix := range []string{"le_", "_c_ffffffff-ffff-4fff-bfff-ffffffffffff-latch-", "ffffffffffffffffffffffffffffffff__lock__", "lock-", "_c_00000000-0000-4000-8000-000000000000-lock-", "00000000000000000000000000000000__lock__", "latch-"} {
			id, err := w.operator.Create(path.Join(node, prefix), nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
			require.NoError(w, err)
			ahead = append(ahead, id)
		}
		c := w.enlist(w.connect())
		kazoo := w.enlist(w.connect(), leaderelection.WithNaming(leaderelection.Kazoo))
		kazoo.follows(c)
		for i := len(ahead) - 1; i >= 0; i-- {
			require.Equal(w, ahead[i], c.last().NowFollowing)
			require.NoError(w, w.operator.Delete(ahead[i], -1))
			w.pass(0)
		}
		c.leads()
		require.NoError(w, c.Resign())
		w.pass(0)
		kazoo.leads()
	})
}
