package core

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// proposeMove proposes an entry that records the new address of a member, at most once in an election timeout.
// If the entry is lost, the member announces its address again, so that a leader proposes it again.
func (c *Core) proposeMove(p replica.Peer, addr string) error {
	if p.Addr == addr {
		return nil
	}
	now := c.now()
	if at, proposed := c.moves[p.Raft]; proposed && now < at+c.cfg.Election {
		return nil
	}
	if other, taken := c.replica.Members.FindAddr(addr); taken {
		c.moves[p.Raft] = now
		return fmt.Errorf("raftlog: peer %s reports the address %s, which belongs to peer %s: its address remains %s", p.ID, addr, other.ID, p.Addr)
	}
	if _, ok := c.proposeControl(replica.Op{Do: replica.Move, Peer: p.Raft, Addr: addr}); ok {
		c.moves[p.Raft] = now
	}
	return nil
}

// proposeOwnMove proposes the new address of this peer if this peer is the leader, because a leader
// sends no announcements.
func (c *Core) proposeOwnMove() {
	if self, member := c.replica.Members.Find(c.self); member && c.proposals.ready {
		if err := c.proposeMove(self, c.cfg.Self.Addr); err != nil {
			c.cfg.Logger.Warn("address of this peer was not changed", "err", err)
		}
	}
}
