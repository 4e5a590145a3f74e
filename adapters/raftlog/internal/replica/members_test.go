package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestMembers_RejectSecondChange checks that a second change of the voters is rejected while another change is
// in progress, and that the same change, written twice, returns the outcome of the first entry.
func TestMembers_RejectSecondChange(t *testing.T) {
	a, b, c := Peer{ID: "a", Raft: 1}, Peer{ID: "b", Raft: 2}, Peer{ID: "c", Raft: 3}
	s := newState(a, b, c)
	first, second := api.RequestIDFrom(now, 1, 1), api.RequestIDFrom(now, 2, 2)
	joint := applyVoters(t, s, first, Joint, a, b)
	require.NoError(t, joint.Err)
	require.False(t, joint.Skipped())

	other := applyVoters(t, s, second, Joint, a, c)
	require.ErrorIs(t, other.Err, api.ErrChanging)
	require.Nil(t, other.Change)
	again := applyVoters(t, s, first, Joint, a, b)
	require.NoError(t, again.Err)
	require.Equal(t, joint.Index, again.First)
	require.True(t, again.Skipped())
	require.Nil(t, again.Change)
	require.ErrorIs(t, applyVoters(t, s, first, Joint, a, c).Err, api.ErrRequestIDReused)
	require.Equal(t, []Peer{a, b}, s.Members.Voters)
}

// TestMembers_EarlierChangeDoesNotRevertMove checks that a change of the voters that was requested before a
// peer has moved neither restores the peer's old address nor removes the peer.
func TestMembers_EarlierChangeDoesNotRevertMove(t *testing.T) {
	a, b, c := Peer{ID: "a", Addr: "a:1", Raft: 1}, Peer{ID: "b", Addr: "b:1", Raft: 2}, Peer{ID: "c", Addr: "c:1", Raft: 3}
	s := newState(a, b)
	change := func(phase Phase, voters ...Peer) {
		t.Helper()
		require.NoError(t, applyVoters(t, s, api.RequestIDFrom(now, s.Index, 1), phase, voters...).Err)
	}
	move := func(p Peer, addr string) Outcome {
		t.Helper()
		return applyControlOp(t, s, Op{Do: Move, Peer: p.Raft, Addr: addr})
	}
	require.ErrorIs(t, move(c, "c:2").Err, api.ErrInvalid, "the peer is not a member")
	change(Admit, c)
	require.ErrorIs(t, move(b, "a:1").Err, api.ErrInvalid, "another member has the address")
	before := s.Members.Voters
	o := move(b, "b:2")
	require.NoError(t, o.Err)
	require.True(t, o.Moved)
	require.Equal(t, "b:1", before[1].Addr, "a slice that was read before must not change")
	require.Equal(t, o.Index, s.Members.Index)
	change(Joint, a, b, c)
	require.NoError(t, move(c, "c:2").Err)
	change(Final, a, b, c)
	require.Empty(t, s.Members.Removed)
	require.Empty(t, s.Members.Learners)
	b.Addr, c.Addr = "b:2", "c:2"
	require.Equal(t, []Peer{a, b, c}, s.Members.Voters)
	change(Joint, a, Peer{ID: "b", Addr: "b:1", Raft: 2})
	require.NoError(t, move(a, "a:2").Err)
	change(Final, a, b)
	require.Equal(t, []string{"c"}, s.Members.Removed)
}
