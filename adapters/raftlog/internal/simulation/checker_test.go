package simulation

// This file checks the safety conditions, which must hold at every moment of a run.

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// checker records what any peer has observed, to check that later observations of all peers agree.
type checker struct {
	h          *harness
	counts     map[string]int           // the number of events of each kind, which shows whether a run contains such events
	committed  []committedEntry         // the committed entries in order; the first one has index 2
	ids        map[api.RequestID]uint64 // the indexes of the applied updates, by request ID
	leaders    map[uint64]string        // the leaders of the log by their terms
	logEntries map[position]logEntry    // the entries that any log has contained
	sums       map[uint64]uint64        // the checksums of the replica, by index
	holders    map[string]holder        // the candidate that last led each election
	ended      map[string]bool          // whether each election is ended
	rejected   map[api.RequestID]string // the updates that must not be applied any more, and why they were rejected
	changeIDs  int                      // the number of changes of the voters, whose IDs do not count towards MaxIDs
}

// committedEntry is an entry that some peer considers committed.
type committedEntry struct {
	term       uint64
	newestTerm uint64 // the smallest term of all peers that have applied the entry: the term in which it was committed
	kind       api.Kind
	id         api.RequestID
	sum, all   uint32
	skipped    bool
	first      uint64
	err        string
	chain      uint64 // the checksum of the state machine after it has applied the entry
	chained    bool   // whether chain is known
}

type position struct{ index, term uint64 }

type logEntry struct {
	sum    uint32
	before uint64 // the term of the entry before this one
}

type holder struct {
	candidate string
	token     uint64
}

// observation is the state of a process when the harness last handled its output.
type observation struct {
	term     uint64
	isLeader bool
	ready    bool
	lease    time.Duration     // when the lease expires, on the clock of the peer
	heads    map[string]holder // the peer's candidates that are heads of their queues, by election
}

func (c *checker) init(h *harness) {
	*c = checker{
		h: h, counts: map[string]int{}, ids: map[api.RequestID]uint64{}, leaders: map[uint64]string{}, logEntries: map[position]logEntry{},
		sums: map[uint64]uint64{}, holders: map[string]holder{}, ended: map[string]bool{}, rejected: map[api.RequestID]string{},
	}
}

// lastIndex returns the greatest index that any peer considers committed.
func (c *checker) lastIndex() uint64 { return 1 + uint64(len(c.committed)) }

func (c *checker) entryAt(index uint64) *committedEntry {
	if index < 2 || index > c.lastIndex() {
		return &committedEntry{}
	}
	return &c.committed[index-2]
}

// checkCommitted checks entries that a peer has applied against those that other peers have applied.
func (c *checker) checkCommitted(p *peer, outcomes []replica.Outcome) {
	for _, o := range outcomes {
		f := committedEntry{
			term: o.Term, newestTerm: p.core.Status().Term, kind: o.Kind, id: o.ID, sum: o.Sum, all: replica.Sum(o.Data), skipped: o.Skipped(), first: o.First,
		}
		if o.Err != nil {
			f.err = o.Err.Error()
		}
		switch {
		case o.Index <= c.lastIndex():
			known := c.entryAt(o.Index)
			known.newestTerm = min(known.newestTerm, f.newestTerm)
			f.chain, f.chained, f.newestTerm = known.chain, known.chained, known.newestTerm
			if *known != f {
				c.h.failf("%s applies entry %d as %+v, and another peer has applied %+v", p.ID, o.Index, f, *known)
			}
			continue
		case o.Index != c.lastIndex()+1:
			c.h.failf("%s applies entry %d, and the newest known entry is %d", p.ID, o.Index, c.lastIndex())
		}
		if c.h.trace != nil {
			c.h.tracef("%s: entry %d of term %d is committed: %v %v %s skipped=%t %s", p.ID, o.Index, o.Term, o.Kind, o.ID, recordText(o), f.skipped, f.err)
		}
		c.committed = append(c.committed, f)
		c.counts["entries"]++
		if f.skipped {
			c.counts["skipped"]++
		}
		switch {
		case o.Kind == api.KindState:
			c.checkUpdateOnce(o)
		case o.Kind == api.KindControl:
			c.recordEnded(p, o)
		case o.Kind == api.KindConfig:
			if _, _, known := p.core.Replica().IDs.Lookup(o.ID); known && !o.Skipped() {
				c.changeIDs++
			}
			c.countLearners(o)
		}
	}
	if n := len(outcomes); n > 0 {
		c.checkReplica(p, p.core.Replica())
	}
}

// recordEnded records which elections are ended after the outcome o, according to the replica of p, which has
// applied at least the entry of o.
func (c *checker) recordEnded(p *peer, o replica.Outcome) {
	for _, name := range append([]string{o.Election}, o.Expired...) {
		ended := p.core.Replica().Elections.Get(name).Ended
		if op, err := replica.DecodeOp(o.Data); err == nil && op.Do == replica.Forget && c.ended[name] && !ended {
			c.counts["removed"]++
		}
		c.ended[name] = ended
	}
}

// countLearners counts the learners that the log admits and removes.
func (c *checker) countLearners(o replica.Outcome) {
	config, err := replica.DecodeConfig(o.Data)
	switch {
	case err != nil:
		c.h.failf("entry %d: %v", o.Index, err)
	case o.Skipped():
	case config.Phase == replica.Admit:
		c.counts["admitted"]++
	case config.Phase == replica.Dismiss:
		c.counts["dismissed"]++
	}
}

func recordText(o replica.Outcome) string {
	if o.Kind == api.KindControl || o.Kind == api.KindConfig {
		return string(o.Text())
	}
	return ""
}

// checkUpdateOnce fails the run if an update is applied a second time.
func (c *checker) checkUpdateOnce(o replica.Outcome) {
	before, applied := c.ids[o.ID]
	switch {
	case !o.Skipped() && applied:
		c.h.failf("the update %v is applied by entry %d, and was applied by entry %d", o.ID, o.Index, before)
	case !o.Skipped() && c.rejected[o.ID] != "":
		c.h.failf("the update %v is applied by entry %d, and was rejected: %s", o.ID, o.Index, c.rejected[o.ID])
	case !o.Skipped():
		c.ids[o.ID] = o.Index
	case o.Err == nil && before != o.First:
		c.h.failf("the update %v of entry %d is reported as applied by entry %d, and was applied by entry %d", o.ID, o.Index, o.First, before)
	case o.Err == nil && c.entryAt(before).sum != o.Sum:
		c.h.failf("the update %v of entry %d is reported as applied by entry %d, which has other data", o.ID, o.Index, before)
	}
}

// checkReplica fails the run if the replicas of two peers differ at the same index.
func (c *checker) checkReplica(p *peer, s *replica.State) {
	if !c.h.recovering && s.Index%4 != 0 || p.corrupt {
		return
	}
	sum := s.Sum()
	if other, known := c.sums[s.Index]; known && other != sum {
		c.h.failf("%s: the replica at %d differs from that of another peer", p.ID, s.Index)
	}
	c.sums[s.Index] = sum
	if s.Index%32 == 0 {
		c.checkIDs(p, s)
	}
}

// checkIDs fails the run if a replica lacks an ID within the window, or stores more IDs than the limit.
func (c *checker) checkIDs(p *peer, s *replica.State) {
	if c.h.disabled.Has(replica.CheckDeduplication) {
		return
	}
	since := s.Clock.Add(-s.Window)
	for id, index := range c.ids {
		if index > s.Index || id.Time().Before(since) {
			continue
		}
		if at, _, known := s.IDs.Lookup(id); !known || at != index {
			c.h.failf("%s: at %d, the replica does not contain the ID %v of entry %d, which is within the window", p.ID, s.Index, id, index)
		}
	}
	if most := 2 * c.h.maxIDs; most > 0 && s.IDs.Len() > most+c.changeIDs {
		c.h.failf("%s: at %d, the replica contains %d IDs; the limit is %d, and %d of changes", p.ID, s.Index, s.IDs.Len(), most, c.changeIDs)
	}
}

// checkStateMachine fails the run if the state machines of two peers differ at the same index.
func (c *checker) checkStateMachine(p *peer) {
	if p.stateMachine.index < 2 {
		return
	}
	if p.stateMachine.index > c.lastIndex() {
		c.h.failf("%s: the state machine is at %d, and nothing after %d is known to be committed", p.ID, p.stateMachine.index, c.lastIndex())
	}
	f := c.entryAt(p.stateMachine.index)
	if f.chained && f.chain != p.stateMachine.chain {
		c.h.failf("%s: the state machine at %d differs from that of another peer", p.ID, p.stateMachine.index)
	}
	f.chain, f.chained = p.stateMachine.chain, true
}

// checkWrite checks the entries that a peer writes against the entries in other logs.
func (c *checker) checkWrite(p *peer, work *core.Write) {
	for i, e := range work.Entries {
		at := position{e.GetIndex(), e.GetTerm()}
		written := logEntry{sum: replica.Sum(e.GetData())}
		if i > 0 {
			written.before = work.Entries[i-1].GetTerm()
		} else if term, err := p.log.Term(at.index - 1); err == nil {
			written.before = term
		} else {
			continue // a compacted entry is not in the log any more
		}
		if other, known := c.logEntries[at]; known && other != written {
			c.h.failf("%s writes entry %d of term %d, and another log contains a different entry: %v, %v", p.ID, at.index, at.term, written, other)
		}
		c.logEntries[at] = written
		if at.index > c.lastIndex() {
			continue
		}
		had, err := p.log.Term(at.index)
		if f := c.entryAt(at.index); err == nil && had == f.term && at.term != had {
			c.h.failf("%s replaces the committed entry %d of term %d by one of term %d", p.ID, at.index, had, at.term)
		}
	}
}

// observe records the state of a process after each step, and checks it.
func (p *peer) observe(out core.Output) {
	h, c := p.h, &p.h.checker
	s := p.core.Status()
	before := p.observed
	p.observed = observation{
		term: s.Term, isLeader: s.Role == core.Leader, ready: s.Ready, lease: s.Lease, heads: before.heads,
	}
	if p.observed.isLeader && !(before.isLeader && before.term == s.Term) {
		c.checkElected(p, s.Term)
	}
	if out.AllElections || len(out.Elections) > 0 || p.observed.heads == nil {
		p.updateHeads()
	}
	c.checkHolder(p)
	h.watchLostDisk(p)
	if h.trace != nil && (before.term != s.Term || before.isLeader != p.observed.isLeader || before.ready != s.Ready || (before.lease > p.Now()) != (s.Lease > p.Now())) {
		h.tracef("%s: %v of term %d, ready=%t, lease for %v, leader %s", p.ID, s.Role, s.Term, s.Ready, max(0, s.Lease-p.Now()), s.Leader.ID)
	}
}

// updateHeads records the elections in which the candidate of this process is the head of the queue.
func (p *peer) updateHeads() {
	heads := map[string]holder{}
	for name, candidate := range p.candidates {
		if head, ok := p.core.Replica().Elections.Get(name).Head(); ok && head.ID == candidate && head.Peer == p.raft {
			heads[name] = holder{candidate, head.Token}
		}
	}
	p.observed.heads = heads
}

// holdsElection returns the peer's candidate that is the head of an election, and whether this
// candidate may lead now.
func (p *peer) holdsElection(name string) (holder, bool) {
	held, ok := p.observed.heads[name]
	return held, ok && p.up && p.observed.lease > p.Now()
}

func (c *checker) checkHolder(p *peer) {
	if len(p.observed.heads) == 0 || p.observed.lease <= p.Now() {
		return
	}
	for i := range c.h.elections {
		name := electionName(i)
		held, ok := p.holdsElection(name)
		if !ok {
			continue
		}
		for _, q := range c.h.peers {
			if q == p {
				continue
			}
			if other, too := q.holdsElection(name); too {
				c.h.failf("%s and %s lead %s at the same time: %v for %v, %v for %v", p.ID, q.ID, name, held, p.observed.lease-p.Now(), other, q.observed.lease-q.Now())
			}
		}
		last := c.holders[name]
		switch {
		case last == held:
		case held.token > last.token: // a later leadership, possibly of the same candidate
			c.h.tracef("%s: leads %s with %v", p.ID, name, held)
			c.counts["holders"]++
			c.holders[name] = held
		default:
			c.h.failf("%s leads %s with %v, and %v was the leader before", p.ID, name, held, last)
		}
	}
}

// checkElected checks a peer that has become the leader of the log in a term.
func (c *checker) checkElected(p *peer, term uint64) {
	c.counts["terms"]++
	if other, known := c.leaders[term]; known && other != p.ID {
		c.h.failf("%s and %s are the leaders of term %d", p.ID, other, term)
	}
	c.leaders[term] = p.ID
	// The log of the new leader must contain everything that was committed in earlier terms. Later
	// leaders may have committed more entries before this peer learns that it was elected.
	n := len(c.committed)
	for n > 0 && c.committed[n-1].newestTerm >= term {
		n--
	}
	if n == 0 {
		return
	}
	index := uint64(n) + 1
	if has := p.termAt(index); has != c.entryAt(index).term && !p.isCompacted(index) {
		c.h.failf("%s leads term %d without entry %d of term %d: it has one of term %d there", p.ID, term, index, c.entryAt(index).term, has)
	}
}

func (p *peer) isCompacted(index uint64) bool {
	first, err := p.log.FirstIndex()
	p.requireNoError(err)
	return index < first-1
}

// termAt returns the term of the entry at index in the log of a peer or in its Writes in flight, or 0
// if there is none.
func (p *peer) termAt(index uint64) uint64 {
	for _, work := range slices.Backward(p.writes) {
		if n := len(work.Entries); n > 0 {
			first := work.Entries[0].GetIndex()
			switch {
			case index >= first+uint64(n):
				return 0
			case index >= first:
				return work.Entries[index-first].GetTerm()
			}
		}
		if work.Snapshot != nil {
			if m := work.Snapshot.GetMetadata(); index == m.GetIndex() {
				return m.GetTerm()
			}
			return 0
		}
	}
	term, err := p.log.Term(index)
	if err != nil {
		return 0
	}
	return term
}
