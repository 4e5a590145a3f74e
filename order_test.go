package leaderelection_test

import (
	"log/slog"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
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

// TestOrder_NamesOfOtherLibraries fails if the names of other libraries are not ordered by their
// numbers alone.
func TestOrder_NamesOfOtherLibraries(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var ahead []string
		for _, prefix := range []string{"le_", "_c_ffffffff-ffff-4fff-bfff-ffffffffffff-latch-", "ffffffffffffffffffffffffffffffff__lock__", "lock-", "_c_00000000-0000-4000-8000-000000000000-lock-", "00000000000000000000000000000000__lock__", "latch-"} {
			id, err := h.operator.Create(path.Join(node, prefix), nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
			require.NoError(h, err)
			ahead = append(ahead, id)
		}
		c := h.join(h.connect())
		kazoo := h.join(h.connect(), leaderelection.WithKazooNames())
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
