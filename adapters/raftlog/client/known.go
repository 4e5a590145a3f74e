package client

// Which peers a client knows of, and in which order it tries them.

import "slices"

// known is what a client knows of the cluster. It is only used with the client's lock.
type known struct {
	seeds  []Peer
	index  uint64 // of the membership
	order  []Peer // members first, then seeds that are none
	leader Peer   // zero if not known
	first  int    // where those begin who know of no leader
}

func newKnown(seeds []Peer) known {
	return known{seeds: slices.Clone(seeds), order: slices.Clone(seeds)}
}

// learn takes a membership over, unless it is older than the one before.
func (k *known) learn(m Membership) {
	if m.Index < k.index || len(m.Voters) == 0 {
		return
	}
	k.index = m.Index
	var order []Peer
	for _, peers := range [][]Peer{m.Voters, m.Outgoing, m.Learners, k.seeds} {
		for _, p := range peers {
			if !slices.ContainsFunc(order, func(q Peer) bool { return q == p || q.Addr == p.Addr && p.ID == "" }) {
				order = append(order, p)
			}
		}
	}
	k.order = order
}

// start is whom to try first.
func (k *known) start() Peer {
	if k.leader != (Peer{}) {
		return k.leader
	}
	p := k.order[k.first%len(k.order)]
	k.first++
	return p
}

// after is whom to try after p.
func (k *known) after(p Peer) Peer {
	return k.order[(slices.Index(k.order, p)+1)%len(k.order)]
}

// find returns the peer with that ID, the newest address of it.
func (k *known) find(id string) (Peer, bool) {
	i := slices.IndexFunc(k.order, func(p Peer) bool { return p.ID == id })
	if i < 0 {
		return Peer{}, false
	}
	return k.order[i], true
}

func (c *Client) firstPeer() Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.start()
}

func (c *Client) peerAfter(p Peer) Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.after(p)
}

func (c *Client) leader() Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.leader
}

func (c *Client) setLeader(p Peer) {
	c.mu.Lock()
	c.known.leader = p
	c.mu.Unlock()
}

// notLeader forgets p as the leader.
func (c *Client) notLeader(p Peer) {
	c.mu.Lock()
	if c.known.leader == p {
		c.known.leader = Peer{}
	}
	c.mu.Unlock()
}

func (c *Client) peers() []Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.known.order)
}
