package leaderelection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCandidates_Order fails if candidates are not listed in the order of succession, or with
// wrong data.
func TestCandidates_Order(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		all, err := leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Empty(h, all)

		var line []*candidate
		for i := range 12 { // with 10 or more, the order of the texts differs
			line = append(line, h.joinNamed(fmt.Sprint(i)))
		}
		require.NoError(h, line[4].Resign())
		line = append(line[:4], line[5:]...)
		all, err = leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, len(line))
		for i, c := range line {
			_, stat, err := h.operator.Get(c.ID())
			require.NoError(h, err)
			name := fmt.Sprint(i)
			if i >= 4 {
				name = fmt.Sprint(i + 1)
			}
			require.Equal(h, candidateInfo(c, name, stat.Czxid), all[i])
		}
		require.Equal(h, line[0].requireLeads().Token(), all[0].Token)

		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		_, err = leaderelection.Candidates(h.Context(), h.operator, node)
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
	})
}

// TestCandidates_Names fails if the name of the leader is wrong, also after the candidate has
// written its znode again.
func TestCandidates_Names(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		one, two, three := h.joinNamed("host-1:8080"), h.joinNamed("ünïcode"), h.joinNamed("")
		for _, want := range []struct {
			c    *candidate
			name string
		}{{one, "host-1:8080"}, {two, "ünïcode"}, {three, "name-not-provided"}} {
			want.c.requireLeads()
			h.advance(time.Second)
			leader := h.firstCandidate()
			require.Equal(h, want.name, leader.Name)
			require.Equal(h, want.c.ID(), leader.ID)
			require.NoError(h, want.c.Resign())
			h.advance(0)
		}
	})
}

// CURATOR-358: the same if no candidate remains, and for the list of all candidates.
func TestTrap43_LastCandidateLeavesDuringRead(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		vanish := func() *zktest.Hook {
			leader := h.createContender()
			return h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: leader, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				_ = h.operator.Delete(leader, -1)
				return zktest.Pass(q)
			})
		}
		conn := h.connect()
		gone := vanish()
		all, err := leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Empty(h, all)
		h.requireMet(gone)

		gone = vanish()
		second := h.createContender()
		all, err = leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Len(h, all, 1)
		require.Equal(h, second, all[0].ID)
		h.requireMet(gone)
	})
}

// ZOOKEEPER-4837: the server does not delete an ephemeral znode. An operator can identify and
// delete this znode.
func TestTrap20_ZnodeWithoutSession(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		left := node + "/_c_00000000-0000-4000-8000-000000000000-latch-0000000000"
		h.create(left)
		c := h.join(h.connect())
		require.Equal(h, left, c.newest().NowFollowing)
		h.advance(time.Minute)
		c.requireNeverLed()
		first := h.firstCandidate()
		require.Equal(h, leaderelection.CandidateInfo{ID: left, Token: h.stat(left).Czxid}, first)
		require.Zero(h, h.stat(first.ID).EphemeralOwner)
		h.remove(first.ID)
		h.advance(0)
		require.Greater(h, c.requireLeads().Token(), first.Token)
	})
}
