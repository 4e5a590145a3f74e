package replica

import (
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// move gives a member another address. Two members never have the same one.
func (m *Members) move(raft uint64, addr string, index uint64) error {
	if _, member := m.Find(raft); !member {
		return fmt.Errorf("%w: it is not a member", api.ErrInvalid)
	}
	if other, taken := m.At(addr); taken && other.Raft != raft {
		return fmt.Errorf("%w: peer %s has the address %s", api.ErrInvalid, other.ID, addr)
	}
	for _, peers := range []*[]entry.Peer{&m.Voters, &m.Outgoing, &m.Clients} {
		*peers = slices.Clone(*peers) // others may have the slice of before
		for i := range *peers {
			if (*peers)[i].Raft == raft {
				(*peers)[i].Addr = addr
			}
		}
	}
	m.Index = index
	return nil
}

// At returns the member with that address.
func (m *Members) At(addr string) (entry.Peer, bool) {
	all := m.All()
	i := slices.IndexFunc(all, func(p entry.Peer) bool { return p.Addr == addr })
	if i < 0 {
		return entry.Peer{}, false
	}
	return all[i], true
}

// located returns the peers with the addresses that they have as members: one may have changed
// while the entry was under way.
func (m *Members) located(peers []entry.Peer) []entry.Peer {
	peers = slices.Clone(peers)
	for i, p := range peers {
		if member, known := m.Find(p.Raft); known {
			peers[i].Addr = member.Addr
		}
	}
	return peers
}
