package simulation

// This file simulates the clients of the cluster: their updates, reads and other requests.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

var errCrashed = errors.New("the process has crashed")

// clients are all clients of the cluster, and their requests.
type clients struct {
	h           *harness
	clockOffset time.Duration // how far all wall clocks are ahead of the virtual time
	token       uint64
	calls       map[uint64]call
	answered    map[uint64]bool // the tokens of calls that have a reply
	done        []*update       // the newest updates that a peer has acknowledged
	pending     int             // the number of requests and replacements of peers that must complete before the run ends
	changing    bool
}

// call is a request to a process, which must reply exactly once.
type call struct {
	p       *peer
	process int
	began   time.Duration
	what    string
	done    func(core.Reply)
}

func (c *clients) init(h *harness) {
	c.h, c.calls, c.answered = h, map[uint64]call{}, map[uint64]bool{}
	if h.noClients {
		return
	}
	for range 3 {
		h.schedule(h.duration(0, 300*time.Millisecond), c.runClient)
	}
	h.schedule(h.duration(0, 300*time.Millisecond), c.runReader)
}

// addCall records a request to the process of p, and returns the token of the request. done is called
// with the reply.
func (c *clients) addCall(p *peer, what string, done func(core.Reply)) uint64 {
	c.token++
	c.calls[c.token] = call{p, p.process, c.h.now, what, done}
	return c.token
}

// handleReply passes the reply of a process to the call with the same token.
func (c *clients) handleReply(p *peer, r core.Reply) {
	made, known := c.calls[r.Token]
	if !known || made.p != p || made.process != p.process {
		c.h.failf("%s replies to call %d (%+v), which was not made at it or has a reply already: %t", p.ID, r.Token, r, c.answered[r.Token])
	}
	delete(c.calls, r.Token)
	c.answered[r.Token] = true
	c.h.addToHash(nil, r.Token, r.Index)
	made.done(r)
}

// failCalls fails the pending calls at a process that has crashed.
func (c *clients) failCalls(p *peer) {
	for _, token := range slices.Sorted(maps.Keys(c.calls)) {
		if made := c.calls[token]; made.p == p {
			delete(c.calls, token)
			made.done(core.Reply{Token: token, Err: errCrashed})
		}
	}
}

// likelyLeader returns a random running peer, which is often one that considers itself the leader. It
// returns nil if no peer is running.
func (h *harness) likelyLeader() *peer {
	up := h.peersWhere(func(p *peer) bool { return p.up && !p.paused })
	if h.randomBool(0.6) {
		if i := slices.IndexFunc(up, func(p *peer) bool { return p.observed.isLeader }); i >= 0 {
			return up[i]
		}
	}
	return h.anyOf(up)
}

// update is an update that a client proposes, with what the client knows about it.
type update struct {
	id       api.RequestID
	data     []byte
	index    uint64 // the index of the entry; 0 if the client does not know that the update was applied
	attempts int
	unknown  bool // whether an earlier attempt may still succeed
	others   *int // the number of updates with the same ID and different data
}

// runClient proposes random updates, one after another.
func (c *clients) runClient() {
	h := c.h
	if h.recovering {
		return
	}
	up := c.nextUpdate()
	c.pending++
	c.proposeUntilKnown(up, func() {
		c.pending--
		h.schedule(h.duration(0, 60*time.Millisecond), c.runClient)
	})
}

// nextUpdate returns a random update: a new update, an earlier update, or other data with an earlier ID.
func (c *clients) nextUpdate() *update {
	h := c.h
	if len(c.done) > 0 && h.randomBool(0.15) {
		old := c.done[h.rand.IntN(len(c.done))]
		if h.randomBool(0.3) {
			*old.others++
			return &update{id: old.id, data: fmt.Appendf(nil, "other %d", h.rand.Uint64()), others: old.others, unknown: true}
		}
		return old
	}
	created := h.wallTime()
	switch h.rand.IntN(40) {
	case 0:
		created = created.Add(-h.window - h.duration(0, time.Hour))
	case 1:
		created = created.Add(h.duration(14*time.Minute, 20*time.Minute))
	case 2:
		created = created.Add(-h.window + h.duration(-time.Second, time.Second))
	}
	return h.newUpdate(created)
}

func (h *harness) newUpdate(created time.Time) *update {
	return &update{id: api.RequestIDFrom(created, h.rand.Uint64(), h.rand.Uint64()), data: append([]byte("update"), make([]byte, h.rand.IntN(200))...), others: new(int)}
}

// proposeUntilKnown proposes an update at one peer after another until the client knows the outcome,
// and then calls end.
func (c *clients) proposeUntilKnown(up *update, end func()) {
	h := c.h
	p := h.likelyLeader()
	if p == nil || up.attempts > 40 && !h.recovering {
		if p == nil && !up.unknown && up.attempts == 0 || up.attempts > 40 {
			end()
			return
		}
		h.schedule(h.duration(10*time.Millisecond, 100*time.Millisecond), func() { c.proposeUntilKnown(up, end) })
		return
	}
	up.attempts++
	over := false // whether the client has stopped waiting for this attempt
	again := func() {
		if !over {
			over = true
			h.schedule(h.duration(0, 30*time.Millisecond), func() { c.proposeUntilKnown(up, end) })
		}
	}
	forward := h.randomBool(0.4)
	r := core.Request{Kind: api.KindState, ID: up.id, Data: up.data, Forward: forward}
	first, applied := up.attempts == 1 && !up.unknown, up.index
	up.unknown = true
	r.Token = c.addCall(p, "update", func(r core.Reply) {
		switch {
		case r.Err == nil:
			c.checkAcknowledged(p, up, r.Index)
		case errors.Is(r.Err, api.ErrRequestIDReused):
			if *up.others == 0 {
				h.failf("%s: update %v: %v", p.ID, up.id, r.Err)
			}
			h.checker.counts["reused"]++
		case errors.Is(r.Err, api.ErrStale), errors.Is(r.Err, api.ErrFuture):
			if first && !forward {
				h.checker.rejected[up.id] = r.Err.Error()
			}
		case errors.Is(r.Err, api.ErrTooManyIDs) && h.maxIDs > 0:
			h.checker.counts["full"]++
			// A peer that has applied the update must not reject it, unless it is a former leader that
			// does not know that it was replaced.
			if applied != 0 && !forward && p.observed.term >= h.checker.entryAt(applied).newestTerm {
				h.failf("%s: update %v was applied by entry %d, and is rejected now: %v", p.ID, up.id, applied, r.Err)
			}
			if first && !forward {
				h.checker.rejected[up.id] = r.Err.Error()
			}
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace):
			if first && !forward && *up.others == 0 {
				up.unknown = false
			}
			again()
			return
		case errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			again()
			return
		default:
			h.failf("%s: update %v: %v", p.ID, up.id, r.Err)
		}
		if !over {
			over = true
			end()
		}
	})
	p.runInput(func() { p.core.Propose(r) })
	h.schedule(h.duration(100*time.Millisecond, 600*time.Millisecond), again)
}

// checkAcknowledged checks an update that a peer has acknowledged, against the committed entries.
func (c *clients) checkAcknowledged(p *peer, up *update, index uint64) {
	f := c.h.checker.entryAt(index)
	switch {
	case f.kind != api.KindState || f.id != up.id || f.skipped || f.sum != replica.Sum(up.data):
		c.h.failf("%s: update %v is reported as applied by entry %d, which is %+v", p.ID, up.id, index, f)
	case up.index != 0 && up.index != index:
		c.h.failf("%s: update %v is reported as applied by entry %d, and was applied by entry %d", p.ID, up.id, index, up.index)
	case p.stateMachine.index < index:
		c.h.failf("%s: update %v is reported as applied by entry %d, and this peer's state machine is at %d", p.ID, up.id, index, p.stateMachine.index)
	}
	if up.index == 0 {
		up.index = index
		if c.done = append(c.done, up); len(c.done) > 40 {
			c.done = c.done[1:]
		}
	}
}

// runReader makes random reads. Each read must include everything that any peer considered committed
// before the read.
func (c *clients) runReader() {
	h := c.h
	if h.recovering {
		return
	}
	if p := h.likelyLeader(); p != nil {
		c.readLinearizable(p, nil)
	}
	h.schedule(h.duration(0, 80*time.Millisecond), c.runReader)
}

func (c *clients) readLinearizable(p *peer, ok func()) {
	h := c.h
	p.runInput(func() {
		if !p.up {
			return
		}
		committed := h.checker.lastIndex()
		token := c.addCall(p, "read", func(r core.Reply) {
			switch {
			case r.Err != nil && !errors.Is(r.Err, api.ErrBusy) && !errors.Is(r.Err, api.ErrNoSpace) && !errors.Is(r.Err, api.ErrRefused) && !errors.Is(r.Err, errCrashed):
				h.failf("%s: read: %v", p.ID, r.Err)
			case r.Err != nil:
			case r.Index < committed || p.stateMachine.index < committed:
				h.failf("%s: read at %d, state machine at %d; %d was committed before", p.ID, r.Index, p.stateMachine.index, committed)
			default:
				h.checker.counts["reads"]++
				if ok != nil {
					ok()
				}
			}
		})
		p.core.Read(token, 0, p.Now()+h.duration(50*time.Millisecond, time.Second))
	})
}
