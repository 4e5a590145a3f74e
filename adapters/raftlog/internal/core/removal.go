package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Established reports whether this peer is a voter whose log has entries after the first one, which founds the
// cluster. Package identity uses the result: only a majority of the voters, whose IDs Established returns, can
// make such a peer stop by refusing its identity.
func (c *Core) Established() (established bool, voters []string) {
	members := &c.replica.Members
	for _, v := range members.Voters {
		voters = append(voters, v.ID)
	}
	return c.last.index > 1 && members.IsVoter(c.self), voters
}

// Membership returns the members of the cluster according to the entries that this peer has applied.
func (c *Core) Membership() api.Membership {
	if c.removed != nil {
		return *c.removed
	}
	return c.replica.Members.Membership()
}

// sendRemoved sends the members to a removed peer, unless the change that has removed it is not settled
// yet: until then the cluster still needs the peer. The removed peer reports the members to its
// clients.
func (c *Core) sendRemoved(to string) {
	if c.replica.Members.Unsettled() {
		return
	}
	m := c.Membership()
	if wire.CheckMembership(m) != nil {
		m.Removed = []string{to} // the list of all removed peers is too long, and the receiver needs only its own ID
	}
	c.sendFrame(to, frameMembers, wire.AppendMembership(nil, m))
}

// removedError returns the error for requests to this peer after the cluster has removed it.
func (c *Core) removedError() error {
	return fmt.Errorf("%w: peer %s was removed from the cluster", api.ErrRefused, c.cfg.Self.ID)
}

// failRemoved fails all requests of this peer when it learns that the cluster has removed it: it will
// neither receive the replies nor apply the entries.
func (p *proposals) failRemoved(c *Core) {
	err := fmt.Errorf("%w: this peer was removed from the cluster", api.ErrUnknownOutcome)
	for _, r := range p.results {
		p.replyAll(c, r.waiters, 0, err)
	}
	p.results = nil
	for _, seq := range sortedKeys(p.forwarded) {
		p.replyTo(c, origin{token: p.forwarded[seq].token}, 0, err)
	}
	clear(p.forwarded)
}

// rejectRemoved replies to a request at a peer that the cluster has removed. Such a peer knows the
// outcome of only one request: the change of the voters that has removed it.
func (p *proposals) rejectRemoved(c *Core, r Request) {
	m, voters := c.removed, slices.Clone(r.Voters)
	byID := func(a, b api.Peer) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(voters, byID)
	if r.Kind == api.KindConfig && slices.Equal(voters, slices.SortedFunc(slices.Values(m.Voters), byID)) {
		p.replyTo(c, origin{token: r.Token}, m.Index, nil)
		return
	}
	p.replyTo(c, origin{token: r.Token}, 0, c.removedError())
}
