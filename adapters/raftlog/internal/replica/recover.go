package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// recover makes a peer the only voter, whatever the configuration was, and removes all others. It
// returns the configuration changes to apply to the engine.
func (m *Members) recover(self entry.Peer) (steps []*raftpb.ConfChangeV2) {
	if m.Joint() {
		steps = append(steps, &raftpb.ConfChangeV2{}) // leaves the joint configuration
	}
	change := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()}
	single := func(t raftpb.ConfChangeType, raft uint64) {
		change.Changes = append(change.Changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: &raft})
	}
	if !slices.ContainsFunc(m.Voters, func(p entry.Peer) bool { return p.Raft == self.Raft }) {
		single(raftpb.ConfChangeAddNode, self.Raft)
	}
	for _, p := range slices.Concat(m.Voters, m.Clients) {
		if p.Raft != self.Raft {
			single(raftpb.ConfChangeRemoveNode, p.Raft)
		}
	}
	if len(change.Changes) > 0 {
		steps = append(steps, change, &raftpb.ConfChangeV2{})
	}
	for _, p := range m.All() {
		if p.ID != self.ID && !m.Gone(p.ID) {
			m.Removed = append(slices.Clip(m.Removed), p.ID)
		}
	}
	m.Removed = slices.DeleteFunc(slices.Clone(m.Removed), func(id string) bool { return id == self.ID })
	m.Voters, m.Outgoing, m.Clients = []entry.Peer{self}, nil, nil
	m.Change, m.Changed, m.Settled = requestid.ID{}, 0, 0
	return steps
}

// Restart turns the state into that of a new cluster with those voters. Its next index is gap+1
// above the present one. IDs that were removed from the old cluster may be used again.
func (s *State) Restart(voters []entry.Peer, gap uint64) {
	s.Index += gap
	s.Term++
	s.Members = newMembers(voters)
	s.Members.Index = s.Index
}
