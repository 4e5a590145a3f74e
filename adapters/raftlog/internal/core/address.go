package core

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// move proposes an entry with the new address of a member, at most once in an election timeout. The
// member repeats its announcement until it has applied the entry.
func (k *contact) move(c *Core, p entry.Peer, addr string) error {
	if p.Addr == addr {
		return nil
	}
	now := c.now()
	if at, under := k.moving[p.Raft]; under && now < at+c.cfg.Election {
		return nil
	}
	if other, taken := c.tables.Members.FindAddr(addr); taken {
		k.moving[p.Raft] = now
		return fmt.Errorf("raftlog: peer %s reports the address %s, which belongs to peer %s: its address remains %s", p.ID, addr, other.ID, p.Addr)
	}
	if c.propose(c.control(c.newID(), entry.Op{Do: entry.Move, Peer: p.Raft, Addr: addr})) {
		k.moving[p.Raft] = now
	}
	return nil
}

// moveSelf proposes the new address of this peer if it is the leader, which sends no announcements.
func (c *Core) moveSelf() {
	if self, member := c.tables.Members.Find(c.self); member && c.props.ready {
		if err := c.contact.move(c, self, c.cfg.Self.Addr); err != nil {
			c.cfg.Logger.Warn("address of this peer was not changed", "err", err)
		}
	}
}
