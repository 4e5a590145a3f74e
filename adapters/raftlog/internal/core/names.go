package core

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"

// names maps the IDs of peers to the numbers that the engine uses for them, and back. It contains the
// configured peers and all peers that have sent a frame, whether they are members or not.
type names struct {
	cluster string
	ids     map[uint64]string
	numbers map[string]uint64
}

func newNames(cfg Config) names {
	n := names{cfg.Cluster, map[uint64]string{}, map[string]uint64{}}
	for _, p := range cfg.Seeds {
		n.numberOf(p.ID)
	}
	return n
}

// numberOf returns the number of the peer with the given ID, and adds the peer to the map.
func (n *names) numberOf(id string) uint64 {
	number, known := n.numbers[id]
	if !known {
		number = replica.RaftID(n.cluster, id)
		n.numbers[id], n.ids[number] = number, id
	}
	return number
}

// peerOf returns the ID of the peer that the engine identifies by the number raft, and false if no peer has
// this number.
func (c *Core) peerOf(raft uint64) (string, bool) {
	if p, found := c.replica.Members.Find(raft); found {
		return p.ID, true
	}
	id, found := c.names.ids[raft]
	return id, found
}
