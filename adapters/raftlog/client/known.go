package client

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Which peers a client knows of, and in which order it tries them.

// known is what a client knows of the cluster. It is only used with the client's lock.
type known struct {
	seeds  []api.Peer
	index  uint64     // of the membership
	order  []api.Peer // members first, then seeds that are none
	leader api.Peer   // zero if not known
	first  int        // where those begin who know of no leader
}

func newKnown(seeds []api.Peer) known {
	return known{seeds: slices.Clone(seeds), order: slices.Clone(seeds)}
}

// learn takes a membership over, unless it is older than the one before.
func (k *known) learn(m api.Membership) {
	if m.Index < k.index || len(m.Voters) == 0 {
		return
	}
	k.index = m.Index
	var order []api.Peer
	for _, peers := range [][]api.Peer{m.Voters, m.Outgoing, m.Learners, k.seeds} {
		for _, p := range peers {
			if !slices.ContainsFunc(order, func(q api.Peer) bool { return q == p || q.Addr == p.Addr && p.ID == "" }) {
				order = append(order, p)
			}
		}
	}
	k.order = order
}

// start is whom to try first.
func (k *known) start() api.Peer {
	if k.leader != (api.Peer{}) {
		return k.leader
	}
	p := k.order[k.first%len(k.order)]
	k.first++
	return p
}

// after is whom to try after p.
func (k *known) after(p api.Peer) api.Peer {
	return k.order[(slices.Index(k.order, p)+1)%len(k.order)]
}

// find returns the peer with that ID, the newest address of it.
func (k *known) find(id string) (api.Peer, bool) {
	i := slices.IndexFunc(k.order, func(p api.Peer) bool { return p.ID == id })
	if i < 0 {
		return api.Peer{}, false
	}
	return k.order[i], true
}

func (c *Client) firstPeer() api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.start()
}

func (c *Client) peerAfter(p api.Peer) api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.after(p)
}

func (c *Client) leader() api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.leader
}

func (c *Client) setLeader(p api.Peer) {
	c.mu.Lock()
	c.known.leader = p
	c.mu.Unlock()
}

// notLeader forgets p as the leader.
func (c *Client) notLeader(p api.Peer) {
	c.mu.Lock()
	if c.known.leader == p {
		c.known.leader = api.Peer{}
	}
	c.mu.Unlock()
}

func (c *Client) peers() []api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.known.order)
}
