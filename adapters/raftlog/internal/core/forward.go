package core

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// forwardedRequest is a request that this peer has forwarded to the leader, and to which the leader has
// not replied yet.
type forwardedRequest struct {
	token    uint64
	deadline time.Duration
	isChange bool // whether the request changes the voters, which takes long
}

// forwardRequest forwards a request to the leader, and records it until the leader replies.
func (p *proposals) forwardRequest(c *Core, r Request) {
	if c.removed != nil {
		p.rejectRemoved(c, r)
		return
	}
	if len(r.Data) > replica.MaxData {
		// Reject a request that is too large here: the leader would reject it as well, and it may not fit into
		// a frame.
		p.replyTo(c, origin{token: r.Token}, 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(r.Data), replica.MaxData))
		return
	}
	if err := wire.CheckPeers(r.Voters...); err != nil {
		p.replyTo(c, origin{token: r.Token}, 0, err)
		return
	}
	leader, known := c.peerOf(c.lead)
	if c.lead == raft.None || !known {
		p.replyTo(c, origin{token: r.Token}, 0, &api.NotLeaderError{})
		return
	}
	p.seq++
	if r.Token != 0 {
		deadline := r.Deadline
		if deadline == 0 {
			deadline = c.now() + c.cfg.Election
		}
		p.forwarded[p.seq] = forwardedRequest{r.Token, deadline, r.Kind == api.KindConfig}
	}
	c.sendFrame(leader, frameRequest, encodeRequest(p.seq, r))
}

// receiveRequest handles a request that another peer has forwarded to this peer.
func (p *proposals) receiveRequest(c *Core, from string, body []byte) error {
	seq, r, err := decodeRequest(body)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if r.Kind == api.KindControl {
		switch r.Op.Do {
		case replica.Join, replica.Leave, replica.End, replica.Restart:
		default:
			return fmt.Errorf("%w from %s: peers must not request the operation %v", errFrame, from, r.Op.Do)
		}
	}
	p.acceptRequest(c, queuedRequest{r, origin{peer: from, seq: seq}})
	return nil
}

// receiveReply handles the leader's reply to a forwarded request. If the leader has applied the entry
// of the request, the caller receives the reply only when this peer has applied the entry, too.
func (p *proposals) receiveReply(c *Core, body []byte) error {
	seq, index, err, malformed := decodeReply(body)
	if malformed != nil {
		return malformed
	}
	r, found := p.forwarded[seq]
	if !found {
		return nil
	}
	delete(p.forwarded, seq)
	if err != nil {
		p.replyTo(c, origin{token: r.token}, index, err)
		return nil
	}
	p.replyWhenApplied(c, result{index, nil, []origin{{token: r.token}}})
	return nil
}

// failForwardedChanges fails all forwarded changes of the voters when another peer becomes the leader. The
// previous leader does not complete these changes, and without failForwardedChanges the callers would wait
// until their deadlines, which are far away.
func (p *proposals) failForwardedChanges(c *Core) {
	for _, seq := range sortedKeys(p.forwarded) {
		if r := p.forwarded[seq]; r.isChange {
			delete(p.forwarded, seq)
			p.replyTo(c, origin{token: r.token}, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
		}
	}
}

// failOverdueForwards fails forwarded requests to which the leader has not replied before their deadlines.
func (p *proposals) failOverdueForwards(c *Core, now time.Duration) {
	for _, seq := range sortedKeys(p.forwarded) {
		if r := p.forwarded[seq]; now >= r.deadline {
			delete(p.forwarded, seq)
			p.replyTo(c, origin{token: r.token}, 0, fmt.Errorf("%w: the leader has not replied in time", api.ErrUnknownOutcome))
		}
	}
}
