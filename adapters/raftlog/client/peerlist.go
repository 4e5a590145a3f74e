package client

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// peerList contains the known peers in the order in which they are called. The lock of the client guards the
// list.
type peerList struct {
	seeds     []api.Peer // the peers of Config
	index     uint64     // the index of the newest membership that the client has received
	order     []api.Peer // the members, and then the seeds that are not members
	leader    api.Peer   // the leader of the log; zero if no leader is known
	nextFirst int        // the position in order of the peer that the next call tries first if the leader is not known
}

func newPeerList(seeds []api.Peer) peerList {
	return peerList{seeds: slices.Clone(seeds), order: slices.Clone(seeds)}
}

// update replaces the list by the peers of a membership and the seeds, unless the list is from a newer
// membership.
func (l *peerList) update(m api.Membership) {
	if m.Index < l.index || len(m.Voters) == 0 {
		return
	}
	l.index = m.Index
	var order []api.Peer
	for _, peers := range [][]api.Peer{m.Voters, m.Outgoing, m.Learners, l.seeds} {
		for _, p := range peers {
			if !slices.ContainsFunc(order, func(q api.Peer) bool { return q == p || q.Addr == p.Addr && p.ID == "" }) {
				order = append(order, p)
			}
		}
	}
	l.order = order
}

// firstPeer returns the peer that receives a new call: the leader if it is known, otherwise the next
// peer in turn.
func (l *peerList) firstPeer() api.Peer {
	if l.leader != (api.Peer{}) {
		return l.leader
	}
	p := l.order[l.nextFirst%len(l.order)]
	l.nextFirst++
	return p
}

// peerAfter returns the peer after p in the list, or the first peer if p is the last or not in the list.
func (l *peerList) peerAfter(p api.Peer) api.Peer {
	return l.order[(slices.Index(l.order, p)+1)%len(l.order)]
}

// find returns the peer with the given ID, with its newest address, and whether the list contains it.
func (l *peerList) find(id string) (api.Peer, bool) {
	i := slices.IndexFunc(l.order, func(p api.Peer) bool { return p.ID == id })
	if i < 0 {
		return api.Peer{}, false
	}
	return l.order[i], true
}

func (c *Client) firstPeer() api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.firstPeer()
}

func (c *Client) nextPeer(p api.Peer) api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.peerAfter(p)
}

func (c *Client) leader() api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.leader
}

func (c *Client) setLeader(p api.Peer) {
	c.mu.Lock()
	c.list.leader = p
	c.mu.Unlock()
}

// forgetLeader marks the leader as unknown if it is p.
func (c *Client) forgetLeader(p api.Peer) {
	c.mu.Lock()
	if c.list.leader == p {
		c.list.leader = api.Peer{}
	}
	c.mu.Unlock()
}

func (c *Client) peers() []api.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list.order)
}
