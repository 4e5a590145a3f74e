package core

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Request asks for an entry in the log. It is answered by a [Reply] with its Token, exactly
// once, when the state machine of this peer has applied the entry, or when it is certain or
// given up that it will not.
type Request struct {
	Token uint64 // 0: nobody waits for a reply
	Kind  api.Kind
	ID    requestid.ID
	Data  []byte      // of State; not to be modified any more
	Op    entry.Op    // of Control
	To    []api.Peer  // of Config: the voters there are to be
	Guard entry.Guard // of State: the leadership without which it is not applied
	// Forward has a peer that does not lead ask the leader; without it the reply is a
	// NotLeaderError.
	Forward bool
	// Deadline is when a peer that has asked the leader gives up, by its clock; 0 for an
	// election timeout from now.
	Deadline time.Duration
}

// proposals are the requests that a peer has taken.
//
// A leader answers by its tables only when it has applied all of before its term: earlier it
// does not know every ID. Until then requests wait in early.
type proposals struct {
	ready   bool // leading, and the first entry of this term is applied
	early   []waiting
	batch   []*raftpb.Entry
	bytes   int
	batched []requestid.ID
	pending map[requestid.ID]*pending // taken by the leader of this term, not applied yet
	done    []done                    // applied to the tables, not by the state machine
	sent    map[uint64]sent           // to the leader, by a peer that does not lead
	seq     uint64
}

// waiting is a request with whoever waits for it.
type waiting struct {
	Request
	origin origin
}

// origin is who waits: this process, or a peer with a number of its own.
type origin struct {
	token uint64
	peer  string
	seq   uint64
}

type pending struct {
	sum     uint32
	kind    api.Kind
	waiters []origin
	first   [1]origin // the place of waiters while there is one, as nearly always
}

type done struct {
	index uint64
	err   error
	who   []origin
}

func (p *proposals) init(c *Core) {
	p.pending, p.sent = map[requestid.ID]*pending{}, map[uint64]sent{}
	p.seq = c.cfg.Random() // an answer to a process before is nobody's
}

// Propose takes a request.
func (c *Core) Propose(r Request) {
	defer contain()
	c.props.take(c, waiting{r, origin{token: r.Token}})
}

func (p *proposals) take(c *Core, w waiting) {
	switch {
	case c.state != raft.StateLeader && w.Forward && w.origin.peer == "":
		p.forward(c, w.Request)
	case c.state != raft.StateLeader:
		p.reply(c, w.origin, 0, &api.NotLeaderError{Leader: c.leader()})
	case !p.ready && len(p.early) < maxBatch:
		p.early = append(p.early, w)
	case !p.ready:
		p.reply(c, w.origin, 0, fmt.Errorf("%w: the leader has just been elected", api.ErrBusy))
	default:
		p.lead(c, w)
	}
}

// lead takes a request as the leader.
func (p *proposals) lead(c *Core, w waiting) {
	var data []byte
	switch w.Kind {
	case api.KindState:
		data = w.Data
	case api.KindControl:
		if w.Op.Do == entry.Restart && !p.restart(c, w) {
			return
		}
		data = w.Op.Encode()
	case api.KindConfig:
		if err := c.space.refuses(c); err != nil {
			p.reply(c, w.origin, 0, err)
			return
		}
		c.change.request(c, w)
		return
	default:
		p.reply(c, w.origin, 0, fmt.Errorf("%w: %v entries cannot be proposed", api.ErrInvalid, w.Kind))
		return
	}
	limit := entry.MaxData
	if w.Kind == api.KindState {
		limit = c.cfg.MaxData
	}
	if len(data) > limit {
		p.reply(c, w.origin, 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(data), limit))
		return
	}
	sum := entry.Sum(data)
	if under := p.pending[w.ID]; under != nil {
		if under.sum != sum || under.kind != w.Kind {
			p.reply(c, w.origin, 0, fmt.Errorf("%w by an update in progress", api.ErrRequestIDReused))
			return
		}
		under.waiters = append(under.waiters, w.origin)
		return
	}
	if w.Kind == api.KindState && c.backlog.full() {
		p.reply(c, w.origin, 0, fmt.Errorf("%w: the state machine has not applied %d entries of %d bytes yet", api.ErrBusy, c.backlog.entries, c.backlog.bytes))
		return
	}
	now := c.calendar()
	full := c.space.refuses(c)
	if w.Kind == api.KindState {
		if full == nil {
			full = c.space.refusesUpdate(p.bytes + len(data))
		}
		index, known, err := c.tables.CheckID(w.ID, sum, now)
		switch {
		case known && err == nil:
			p.finish(c, done{index, nil, []origin{w.origin}})
			return
		case !known && fenced(c, w.Guard):
			p.reply(c, w.origin, 0, api.ErrFenced)
			return
		case err != nil:
			p.reply(c, w.origin, 0, err)
			return
		case c.cfg.MaxIDs > 0 && c.tables.IDs.Len()+len(p.pending) >= c.cfg.MaxIDs:
			p.reply(c, w.origin, 0, fmt.Errorf("%w: %d", api.ErrTooManyIDs, c.cfg.MaxIDs))
			return
		}
	}
	if full != nil {
		p.reply(c, w.origin, 0, full)
		return
	}
	under := &pending{sum: sum, kind: w.Kind, first: [1]origin{w.origin}}
	under.waiters = under.first[:]
	p.pending[w.ID] = under
	p.batched = append(p.batched, w.ID)
	raw := entry.Encode(entry.Header{Kind: w.Kind, ID: w.ID, Time: now, Sum: sum, Guard: w.Guard}, data)
	p.batch = append(p.batch, &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: raw})
	if p.bytes += len(raw); len(p.batch) >= maxBatch || p.bytes >= maxBatchBytes {
		p.flush(c)
	}
}

// fenced reports whether it is certain that an update with this guard would not be applied: the
// leadership has ended by an entry that this peer has applied. Such an update is not written: it
// would be in the log, and marked as skipped, to no effect. If this peer has not applied the entry
// by which the leadership began, the log decides.
func fenced(c *Core, g entry.Guard) bool {
	return g.Token <= c.tables.Index && !c.tables.GuardHolds(g)
}

// restart tells whether a request to let an election begin anew is to be written; false if it was
// answered instead.
func (p *proposals) restart(c *Core, w waiting) bool {
	line := c.tables.Elections.Get(w.Op.Election)
	switch {
	case c.tables.Index < w.Op.Through: // of a new leader, or this one's disk is slow: the end may be another one
		p.reply(c, w.origin, 0, &api.NotLeaderError{})
	case !line.Ended, line.EndedAt > w.Op.Through:
		p.finish(c, done{c.tables.Index, nil, []origin{w.origin}})
	case !c.expiry.mayRestart(c, w.Op.Election):
		p.reply(c, w.origin, 0, fmt.Errorf("%w: election %q has just ended, and its leader may not know that yet; it can be started again in %v",
			api.ErrBusy, w.Op.Election, c.cfg.Election))
	default:
		return true
	}
	return false
}

// flush gives the engine what has come together, as one message. While the disk writes,
// requests wait for each other: few large writes and messages are worth more than many small
// ones, and a single client never waits.
func (p *proposals) flush(c *Core) {
	if len(p.batch) == 0 || c.writing >= maxWriting && len(p.batch) < maxBatch && p.bytes < maxBatchBytes {
		return
	}
	entries, ids := p.batch, p.batched
	p.batch, p.batched, p.bytes = nil, nil, 0
	if c.propose(entries...) {
		return
	}
	for _, id := range ids {
		if under := p.pending[id]; under != nil {
			delete(p.pending, id)
			p.replyAll(c, under.waiters, 0, fmt.Errorf("%w: the leader does not accept more updates now", api.ErrBusy))
		}
	}
}

// begin is called when a leader has applied the first entry of its term.
func (p *proposals) begin(c *Core) {
	p.ready = true
	early := p.early
	p.early = nil
	for _, w := range early {
		p.lead(c, w)
	}
}

// applied answers those who wait for an entry, once the state machine has it too.
func (p *proposals) applied(c *Core, o replica.Outcome) {
	under := p.pending[o.ID]
	if under == nil || under.kind != o.Kind {
		return
	}
	delete(p.pending, o.ID)
	p.finish(c, done{o.First, o.Err, under.waiters})
}

func (p *proposals) finish(c *Core, d done) {
	if d.index <= c.applied {
		p.replyAll(c, d.who, d.index, d.err)
		return
	}
	if p.done = append(p.done, d); c.contact.removed != nil {
		p.removed(c)
	}
}

// release answers what the state machine has applied.
func (p *proposals) release(c *Core) {
	kept := p.done[:0]
	for _, d := range p.done {
		if d.index > c.applied {
			kept = append(kept, d)
			continue
		}
		p.replyAll(c, d.who, d.index, d.err)
	}
	clear(p.done[len(kept):])
	p.done = kept
	c.lease.read(c)
}

// lost is called when this peer leads no more, or in another term. What it has written may
// be committed yet, or never.
func (p *proposals) lost(c *Core) {
	p.ready = false
	batched := p.batched
	p.batch, p.batched, p.bytes = nil, nil, 0
	for _, id := range batched { // not written, and never will be
		under := p.pending[id]
		delete(p.pending, id)
		p.replyAll(c, under.waiters, 0, &api.NotLeaderError{})
	}
	for _, under := range sortedPending(p.pending) {
		p.replyAll(c, under.waiters, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
	}
	clear(p.pending)
	c.contact.lost()
}

// redirect answers early requests of one who does not lead any more.
func (p *proposals) redirect(c *Core) {
	early := p.early
	p.early = nil
	for _, w := range early {
		p.take(c, w)
	}
}

func (p *proposals) replyAll(c *Core, who []origin, index uint64, err error) {
	for _, o := range who {
		p.reply(c, o, index, err)
	}
}

func (p *proposals) reply(c *Core, o origin, index uint64, err error) {
	switch {
	case o.peer != "":
		c.sendFrame(o.peer, frameReply, encodeReply(o.seq, index, err))
	case o.token != 0:
		c.out.Replies = append(c.out.Replies, Reply{o.token, index, err})
	}
}
