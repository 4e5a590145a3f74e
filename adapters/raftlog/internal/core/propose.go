package core

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Request is a request to write an entry to the log. It receives exactly one [Reply] with the same
// Token: when the state machine of this peer has applied the entry, when the entry will certainly not
// be applied, or when the outcome remains unknown.
type Request struct {
	Token  uint64 // identifies the request in the reply; 0 if no caller waits for a reply
	Kind   api.Kind
	ID     api.RequestID
	Data   []byte        // Data is the update of a KindState request. The caller must not modify it any more.
	Op     replica.Op    // Op is the operation of a KindControl request.
	Voters []api.Peer    // Voters are the new voters of a KindConfig request.
	Guard  replica.Guard // Guard is the leadership on which a KindState entry depends; zero if it depends on none.
	// Forward makes a peer that is not the leader forward the request to the leader. If Forward is
	// false, such a peer replies with a NotLeaderError.
	Forward bool
	// Deadline is the time on the clock of this peer until which a forwarded request waits for the
	// leader's reply. 0 means an election timeout from now.
	Deadline time.Duration
}

// proposals contains the requests that this peer has accepted and not replied to.
//
// A leader decides about requests only when it has applied all entries of earlier terms, because before
// that it does not know all request IDs. Until then, requests wait in the field early.
type proposals struct {
	ready     bool // whether this peer is the leader and has applied the first entry of its term
	early     []queuedRequest
	now       time.Time                   // the time used for all requests until the next output; zero before the first
	batch     []*raftpb.Entry             // the entries to propose to the engine; addToBatch reuses those beyond its length
	batchIDs  []api.RequestID             // the request IDs of the entries in batch
	bytes     int                         // the total size of the entries in batch, in bytes
	pending   map[api.RequestID]*proposal // what this leader has proposed in this term, and not applied yet
	results   []result                    // the results that wait until the state machine has applied their entries
	unused    []*proposal                 // finished proposals, whose memory addPending reuses
	forwarded map[uint64]forwardedRequest // the requests that this peer has forwarded to the leader, by their numbers
	seq       uint64                      // the number of the last forwarded request
}

// queuedRequest is a request together with the origin that waits for its reply.
type queuedRequest struct {
	Request
	origin origin
}

// origin identifies the caller that waits for a reply: a caller in this process by its token, or a
// caller at another peer by the ID of the peer and the number of the request.
type origin struct {
	token uint64
	peer  string
	seq   uint64
}

// proposal is an entry that this leader has proposed to the engine, or is about to propose.
type proposal struct {
	sum     uint32
	kind    api.Kind
	guard   replica.Guard
	waiters []origin
	first   [1]origin // the memory of waiters while there is only one, which avoids an allocation
}

// result is the outcome of a request whose reply waits until the state machine has applied the entry.
type result struct {
	index   uint64
	err     error
	waiters []origin
}

func newProposals(cfg Config) proposals {
	return proposals{
		pending: map[api.RequestID]*proposal{}, forwarded: map[uint64]forwardedRequest{},
		seq: cfg.Random(), // a random start keeps replies to an earlier process from being taken for later replies
	}
}

// Propose accepts a request. A later output contains the reply.
func (c *Core) Propose(r Request) {
	defer containPanic()
	c.proposals.acceptRequest(c, queuedRequest{r, origin{token: r.Token}})
}

// acceptRequest proposes a request, queues it until this leader is ready, forwards it to the leader, or
// rejects it.
func (p *proposals) acceptRequest(c *Core, q queuedRequest) {
	switch {
	case c.state != raft.StateLeader && q.Forward && q.origin.peer == "":
		p.forwardRequest(c, q.Request)
	case c.state != raft.StateLeader:
		p.replyTo(c, q.origin, 0, &api.NotLeaderError{Leader: c.leader()})
	case !p.ready && len(p.early) < maxBatch:
		p.early = append(p.early, q)
	case !p.ready:
		p.replyTo(c, q.origin, 0, fmt.Errorf("%w: the leader has just been elected", api.ErrBusy))
	default:
		p.proposeRequest(c, q)
	}
}

// proposeRequest proposes a request to the engine, as the leader, or rejects the request.
func (p *proposals) proposeRequest(c *Core, q queuedRequest) {
	var data []byte
	limit := replica.MaxData
	switch q.Kind {
	case api.KindState:
		data, limit = q.Data, c.cfg.MaxData
	case api.KindControl:
		if q.Op.Do == replica.Restart && !p.acceptRestart(c, q) {
			return
		}
		data = q.Op.Encode()
	case api.KindConfig:
		if err := c.space.checkMajority(c); err != nil {
			p.replyTo(c, q.origin, 0, err)
			return
		}
		c.change.requestChange(c, q)
		return
	default:
		p.replyTo(c, q.origin, 0, fmt.Errorf("%w: %v entries cannot be proposed", api.ErrInvalid, q.Kind))
		return
	}
	if len(data) > limit {
		p.replyTo(c, q.origin, 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(data), limit))
		return
	}
	sum := replica.Sum(data)
	if same := p.pending[q.ID]; same != nil {
		switch {
		case same.sum != sum || same.kind != q.Kind:
			p.replyTo(c, q.origin, 0, fmt.Errorf("%w by an update in progress", api.ErrRequestIDReused))
		case same.guard != q.Guard: // the guards can differ in their outcome, so the two requests cannot share one
			p.replyTo(c, q.origin, 0, fmt.Errorf("%w: the same update with another guard is in progress", api.ErrBusy))
		default:
			same.waiters = append(same.waiters, q.origin)
		}
		return
	}
	if p.now.IsZero() {
		p.now = c.entryTime()
	}
	now := p.now
	if q.Kind == api.KindState && !p.acceptUpdate(c, q, sum, now) {
		return
	}
	if q.Kind != api.KindState {
		if err := c.space.checkMajority(c); err != nil {
			p.replyTo(c, q.origin, 0, err)
			return
		}
	}
	p.addPending(q, sum)
	p.batchIDs = append(p.batchIDs, q.ID)
	e := p.addToBatch()
	e.Data = replica.AppendEntry(e.Data, replica.Header{Kind: q.Kind, ID: q.ID, Time: now, Sum: sum, Guard: q.Guard}, data)
	if p.bytes += len(e.Data); len(p.batch) >= maxBatch || p.bytes >= maxBatchBytes {
		p.flushBatch(c)
	}
}

// addPending records that this leader proposes the entry of a request.
func (p *proposals) addPending(q queuedRequest, sum uint32) {
	var added *proposal
	if n := len(p.unused); n > 0 {
		added, p.unused = p.unused[n-1], p.unused[:n-1]
	} else {
		added = new(proposal)
	}
	*added = proposal{sum: sum, kind: q.Kind, guard: q.Guard, first: [1]origin{q.origin}}
	added.waiters = added.first[:]
	p.pending[q.ID] = added
}

// addToBatch adds an entry without data to the batch, and returns the entry. It uses the memory of an
// entry of an earlier batch, because the engine copies the entries that are proposed to it.
func (p *proposals) addToBatch() *raftpb.Entry {
	n := len(p.batch)
	if n < cap(p.batch) {
		p.batch = p.batch[:n+1]
	} else {
		p.batch = append(p.batch, nil)
	}
	e := p.batch[n]
	if e == nil {
		e = &raftpb.Entry{Type: raftpb.EntryNormal.Enum()}
		p.batch[n] = e
	}
	return e
}

// clearBatch removes all entries from the batch, and keeps the memory of small entries for the next
// batch.
func (p *proposals) clearBatch() {
	for _, e := range p.batch {
		if cap(e.Data) > maxKeptData {
			e.Data = nil
		}
		e.Data = e.Data[:0]
	}
	p.batch, p.batchIDs, p.bytes = p.batch[:0], p.batchIDs[:0], 0
}

// acceptUpdate reports whether the leader must write an update. Otherwise it has replied: the ID is
// known or outside of the window, the leadership of the guard is over, or there is no capacity.
func (p *proposals) acceptUpdate(c *Core, q queuedRequest, sum uint32, now time.Time) bool {
	if c.backlog.isFull() {
		p.replyTo(c, q.origin, 0, fmt.Errorf("%w: the state machine has not applied %d entries of %d bytes yet", api.ErrBusy, c.backlog.entries, c.backlog.bytes))
		return false
	}
	index, known, err := c.replica.CheckID(q.ID, sum, now)
	switch {
	case known && err == nil:
		p.replyWhenApplied(c, result{index, nil, []origin{q.origin}})
		return false
	case !known && certainlyFenced(c, q.Guard):
		err = api.ErrFenced
	case err != nil:
	case c.cfg.MaxIDs > 0 && c.replica.IDs.Len()+len(p.pending) >= c.cfg.MaxIDs:
		err = fmt.Errorf("%w: the limit is %d", api.ErrTooManyIDs, c.cfg.MaxIDs)
	default:
		if err = c.space.checkMajority(c); err == nil {
			err = c.space.checkUpdate(p.bytes + len(q.Data))
		}
	}
	if err != nil {
		p.replyTo(c, q.origin, 0, err)
	}
	return err == nil
}

// certainlyFenced reports whether an update with this guard would certainly not be applied: the
// leadership has ended by an entry that this peer has applied. The leader does not write such an
// update, because the update would only be marked as skipped. If this peer has not applied the entry
// that started the leadership, it cannot decide, and writes the update.
func certainlyFenced(c *Core, g replica.Guard) bool {
	return g.Token <= c.replica.Index && !c.replica.GuardHolds(g)
}

// acceptRestart reports whether the leader must write a request to restart an election. Otherwise it
// has replied to the request.
func (p *proposals) acceptRestart(c *Core, q queuedRequest) bool {
	e := c.replica.Elections.Get(q.Op.Election)
	switch {
	case c.replica.Index < q.Op.Through: // this leader may lack a later end of the election
		p.replyTo(c, q.origin, 0, &api.NotLeaderError{})
	case !e.Ended, e.EndedAt > q.Op.Through:
		p.replyWhenApplied(c, result{c.replica.Index, nil, []origin{q.origin}})
	case !c.expiry.mayRestart(c, q.Op.Election):
		p.replyTo(c, q.origin, 0, fmt.Errorf("%w: election %q has just ended, and its leader may not know that yet; it can be started again in %v",
			api.ErrBusy, q.Op.Election, c.cfg.Election))
	default:
		return true
	}
	return false
}

// flushBatch proposes the batch to the engine, as one message, unless it waits for more requests: while
// maxWritesInFlight Writes are in flight, requests are collected up to the limits of a batch, because a few
// large writes and messages are faster than many small ones. A client that waits for each reply is not
// delayed, because it causes no more than one Write at a time.
func (p *proposals) flushBatch(c *Core) {
	if len(p.batch) == 0 || c.writesInFlight >= maxWritesInFlight && len(p.batch) < maxBatch && p.bytes < maxBatchBytes {
		return
	}
	defer p.clearBatch()
	if c.proposeEntries(p.batch...) {
		return
	}
	for _, id := range p.batchIDs {
		if rejected := p.pending[id]; rejected != nil {
			delete(p.pending, id)
			p.replyAll(c, rejected.waiters, 0, fmt.Errorf("%w: the leader does not accept more updates now", api.ErrBusy))
		}
	}
}

// becomeReady marks this leader as ready and proposes the early requests, when the leader has applied
// the first entry of its term.
func (p *proposals) becomeReady(c *Core) {
	p.ready = true
	early := p.early
	p.early = nil
	for _, q := range early {
		p.proposeRequest(c, q)
	}
}

// replyToApplied replies to the requests for an entry that the replica has applied, when the state
// machine has applied it, too.
func (p *proposals) replyToApplied(c *Core, o replica.Outcome) {
	applied := p.pending[o.ID]
	if applied == nil || applied.kind != o.Kind {
		return
	}
	delete(p.pending, o.ID)
	// The entry was passed to the last Apply of the output, or to an earlier one, so the reply may wait for
	// the last one.
	a := &c.output.Apply[len(c.output.Apply)-1]
	others := applied.waiters[:0]
	for _, w := range applied.waiters {
		if w.peer != "" {
			others = append(others, w)
		} else if w.token != 0 {
			a.Replies = append(a.Replies, Reply{w.token, o.First, o.Err})
		}
	}
	switch {
	case len(others) > 0:
		p.replyWhenApplied(c, result{o.First, o.Err, others})
	case len(p.unused) < maxBatch:
		p.unused = append(p.unused, applied)
	}
}

// replyWhenApplied replies to the waiters of r when the state machine has applied the entry at r.index.
func (p *proposals) replyWhenApplied(c *Core, r result) {
	if r.index <= c.applied {
		p.replyAll(c, r.waiters, r.index, r.err)
		return
	}
	if p.results = append(p.results, r); c.removed != nil {
		p.failRemoved(c)
	}
}

// releaseReplies sends the replies whose entries the state machine has applied.
func (p *proposals) releaseReplies(c *Core) {
	kept := p.results[:0]
	for _, r := range p.results {
		if r.index > c.applied {
			kept = append(kept, r)
			continue
		}
		p.replyAll(c, r.waiters, r.index, r.err)
	}
	clear(p.results[len(kept):])
	p.results = kept
	c.lease.answerReaders(c)
}

// failPending fails the requests that this leader has accepted, when its term is over. The entries that
// it has written for them may still be committed, or another leader may replace them.
func (p *proposals) failPending(c *Core) {
	p.ready = false
	for _, id := range p.batchIDs { // these entries were not proposed to the engine, so they were certainly not written
		unwritten := p.pending[id]
		delete(p.pending, id)
		p.replyAll(c, unwritten.waiters, 0, &api.NotLeaderError{})
	}
	p.clearBatch()
	for _, written := range sortedPending(p.pending) {
		p.replyAll(c, written.waiters, 0, fmt.Errorf("%w: the leader has changed", api.ErrUnknownOutcome))
	}
	clear(p.pending)
}

// acceptEarlyAgain accepts the requests in early again when this peer is not the leader any more, so that
// it forwards or rejects them.
func (p *proposals) acceptEarlyAgain(c *Core) {
	early := p.early
	p.early = nil
	for _, q := range early {
		p.acceptRequest(c, q)
	}
}

func (p *proposals) replyAll(c *Core, waiters []origin, index uint64, err error) {
	for _, o := range waiters {
		p.replyTo(c, o, index, err)
	}
}

// replyTo sends the outcome of a request to its origin: the peer that has forwarded the request, or a caller at
// this peer.
func (p *proposals) replyTo(c *Core, o origin, index uint64, err error) {
	switch {
	case o.peer != "":
		c.notices.sendTo(c, c.names.numberOf(o.peer)) // the forwarding peer waits for this entry
		c.sendFrame(o.peer, frameReply, encodeReply(o.seq, index, err))
	case o.token != 0:
		c.output.Replies = append(c.output.Replies, Reply{o.token, index, err})
	}
}
