package core

// Requests that go from a peer to the leader: what the asker keeps, and gives up.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// sent is what another peer is to answer.
type sent struct {
	token    uint64
	deadline time.Duration
	change   bool // of the peers, which takes long
}

// removed is called when this peer takes no part any more: what it waits for, to hear or to
// apply, does not come.
func (p *proposals) removed(c *Core) {
	gone := fmt.Errorf("%w: this peer was removed from the cluster", api.ErrUnknownOutcome)
	for _, d := range p.done {
		p.replyAll(c, d.who, 0, gone)
	}
	p.done = nil
	for _, seq := range sortedKeys(p.sent) {
		p.reply(c, origin{token: p.sent[seq].token}, 0, gone)
	}
	clear(p.sent)
}

// refuse answers as one that was removed. It knows of one thing: the change that has removed
// it is complete.
func (p *proposals) refuse(c *Core, r Request) {
	m, to := c.contact.removed, slices.Clone(r.To)
	byID := func(a, b api.Peer) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(to, byID)
	if r.Kind == api.KindConfig && slices.Equal(to, slices.SortedFunc(slices.Values(m.Voters), byID)) {
		p.reply(c, origin{token: r.Token}, m.Index, nil)
		return
	}
	p.reply(c, origin{token: r.Token}, 0, c.refused())
}

// refused is what one that was removed says to whoever asks it for something.
func (c *Core) refused() error {
	return fmt.Errorf("%w: peer %s was removed from the cluster", api.ErrRefused, c.cfg.Self.ID)
}

// forward asks the leader.
func (p *proposals) forward(c *Core, r Request) {
	if c.contact.removed != nil {
		p.refuse(c, r)
		return
	}
	if len(r.Data) > entry.MaxData { // the leader would reject it, and frames have a limit
		p.reply(c, origin{token: r.Token}, 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(r.Data), entry.MaxData))
		return
	}
	if err := wire.CheckPeers(r.To...); err != nil {
		p.reply(c, origin{token: r.Token}, 0, err)
		return
	}
	leader, known := c.peerOf(c.lead)
	if c.lead == raft.None || !known {
		p.reply(c, origin{token: r.Token}, 0, &api.NotLeaderError{})
		return
	}
	p.seq++
	if r.Token != 0 {
		deadline := r.Deadline
		if deadline == 0 {
			deadline = c.now() + c.cfg.Election
		}
		p.sent[p.seq] = sent{r.Token, deadline, r.Kind == api.KindConfig}
	}
	c.sendFrame(leader, frameRequest, encodeRequest(p.seq, r))
}

// received takes another peer's request.
func (p *proposals) received(c *Core, from string, body []byte) error {
	seq, r, err := decodeRequest(body)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if r.Kind == api.KindControl {
		switch r.Op.Do {
		case entry.Join, entry.Leave, entry.End, entry.Restart:
		default:
			return fmt.Errorf("%w from %s: operation %v is not for others to ask for", errFrame, from, r.Op.Do)
		}
	}
	p.take(c, waiting{r, origin{peer: from, seq: seq}})
	return nil
}

// answered takes the leader's answer. One that says that the entry is applied waits until
// this peer has applied it.
func (p *proposals) answered(c *Core, body []byte) error {
	seq, index, err, malformed := decodeReply(body)
	if malformed != nil {
		return malformed
	}
	s, found := p.sent[seq]
	if !found {
		return nil
	}
	delete(p.sent, seq)
	if err != nil {
		p.reply(c, origin{token: s.token}, index, err)
		return nil
	}
	p.finish(c, done{index, nil, []origin{{token: s.token}}})
	return nil
}

// followed is called when another peer leads: the one before does not complete a change of the
// peers, and its answer is not worth the patience that such a change needs.
func (p *proposals) followed(c *Core) {
	for _, seq := range sortedKeys(p.sent) {
		if s := p.sent[seq]; s.change {
			delete(p.sent, seq)
			p.reply(c, origin{token: s.token}, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
		}
	}
}

// check gives up what the leader does not answer.
func (p *proposals) check(c *Core, now time.Duration) {
	for _, seq := range sortedKeys(p.sent) {
		if s := p.sent[seq]; now >= s.deadline {
			delete(p.sent, seq)
			p.reply(c, origin{token: s.token}, 0, fmt.Errorf("%w: the leader has not answered", api.ErrUnknownOutcome))
		}
	}
}
