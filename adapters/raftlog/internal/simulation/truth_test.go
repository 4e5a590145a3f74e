package simulation

// What must be true at every moment.

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// truth is what somebody has seen, and everybody else must see so.
type truth struct {
	counts
	w       *world
	facts   []fact // of the entries from index 2 on
	ids     map[requestid.ID]uint64
	leaders map[uint64]string       // by term
	written map[position]written    // entries that any log has ever had
	sums    map[uint64]uint64       // of the tables, by index
	holders map[string]holder       // the newest of each election
	over    map[string]bool         // elections that are ended
	refused map[requestid.ID]string // never to be applied, and why
	asked   int                     // changes of the peers whose IDs are remembered besides
}

// counts say how much has happened, so that a simulation in which nothing does is seen.
type counts struct {
	entries, skipped, terms, crashes, snapshots, installs, compactions, holders, reads, changes, handOvers, reused int
	faults, noSnapshots, full, wiped, lost, admitted, dismissed, noRoom, noStart, mistaken, diverged, forgot       int
	waited, votesAhead, removed                                                                                    int
}

// fact is a committed entry.
type fact struct {
	term     uint64
	in       uint64 // the smallest term of a peer when it has applied it: it was committed by then
	kind     api.Kind
	id       requestid.ID
	sum, all uint32
	skipped  bool
	first    uint64
	err      string
	chain    uint64 // of the state machine that has applied it
	chained  bool
}

type position struct{ index, term uint64 }

type written struct {
	sum    uint32
	before uint64 // the term of the entry before
}

type holder struct {
	candidate string
	token     uint64
}

// published is what a process says of itself: what was so when it was last asked.
type published struct {
	term   uint64
	leads  bool
	ready  bool
	lease  time.Duration // by its clock
	claims map[string]holder
}

func (t *truth) init(w *world) {
	*t = truth{
		w: w, ids: map[requestid.ID]uint64{}, leaders: map[uint64]string{}, written: map[position]written{},
		sums: map[uint64]uint64{}, holders: map[string]holder{}, over: map[string]bool{}, refused: map[requestid.ID]string{},
	}
}

// last is the newest index that is known to be committed.
func (t *truth) last() uint64 { return 1 + uint64(len(t.facts)) }

func (t *truth) at(index uint64) *fact {
	if index < 2 || index > t.last() {
		return &fact{}
	}
	return &t.facts[index-2]
}

// committed takes entries that a peer says are committed.
func (t *truth) committed(p *peer, outcomes []replica.Outcome) {
	for _, o := range outcomes {
		f := fact{
			term: o.Term, in: p.core.Status().Term, kind: o.Kind, id: o.ID, sum: o.Sum, all: entry.Sum(o.Data), skipped: o.Skipped(), first: o.First,
		}
		if o.Err != nil {
			f.err = o.Err.Error()
		}
		switch {
		case o.Index <= t.last():
			was := *t.at(o.Index)
			at := t.at(o.Index)
			at.in = min(at.in, f.in)
			f.chain, f.chained, f.in = was.chain, was.chained, was.in
			if was != f {
				t.w.failf("%s applies entry %d as %+v, and another peer has applied %+v", p.ID, o.Index, f, was)
			}
			continue
		case o.Index != t.last()+1:
			t.w.failf("%s applies entry %d, and the newest known is %d", p.ID, o.Index, t.last())
		}
		if t.w.say != nil {
			t.w.tracef("%s: entry %d of term %d is committed: %v %v %s skipped=%t %s", p.ID, o.Index, o.Term, o.Kind, o.ID, brief(o), f.skipped, f.err)
		}
		t.facts = append(t.facts, f)
		t.entries++
		if f.skipped {
			t.skipped++
		}
		switch {
		case o.Kind == api.KindState:
			t.once(o)
		case o.Kind == api.KindControl:
			t.controlled(p, o)
		case o.Kind == api.KindConfig:
			if _, _, known := p.core.Replica().IDs.Lookup(o.ID); known && !o.Skipped() {
				t.asked++
			}
			t.configured(o)
		}
	}
	if n := len(outcomes); n > 0 {
		t.tables(p, p.core.Replica())
	}
}

// controlled notes which elections are ended; the tables are at least as new as the entry.
func (t *truth) controlled(p *peer, o replica.Outcome) {
	for _, name := range append([]string{o.Election}, o.Expired...) {
		ended := p.core.Replica().Elections.Get(name).Ended
		if op, err := entry.DecodeOp(o.Data); err == nil && op.Do == entry.Forget && t.over[name] && !ended {
			t.removed++
		}
		t.over[name] = ended
	}
}

// configured counts the clients that come and go.
func (t *truth) configured(o replica.Outcome) {
	c, err := entry.DecodeConfig(o.Data)
	switch {
	case err != nil:
		t.w.failf("entry %d: %v", o.Index, err)
	case o.Skipped():
	case c.Phase == entry.Admit:
		t.admitted++
	case c.Phase == entry.Dismiss:
		t.dismissed++
	}
}

func brief(o replica.Outcome) string {
	if o.Kind == api.KindControl || o.Kind == api.KindConfig {
		return string(o.Text())
	}
	return ""
}

// once has every update applied once.
func (t *truth) once(o replica.Outcome) {
	before, was := t.ids[o.ID]
	switch {
	case !o.Skipped() && was:
		t.w.failf("the update %v is applied by entry %d, and was applied by entry %d", o.ID, o.Index, before)
	case !o.Skipped() && t.refused[o.ID] != "":
		t.w.failf("the update %v is applied by entry %d, and was refused: %s", o.ID, o.Index, t.refused[o.ID])
	case !o.Skipped():
		t.ids[o.ID] = o.Index
	case o.Err == nil && before != o.First:
		t.w.failf("the update %v of entry %d is said to be applied by entry %d, and was by %d", o.ID, o.Index, o.First, before)
	case o.Err == nil && t.at(before).sum != o.Sum:
		t.w.failf("the update %v of entry %d is said to be that of %d, whose data are others", o.ID, o.Index, before)
	}
}

// tables compares the tables at one index.
func (t *truth) tables(p *peer, s *replica.State) {
	if !t.w.calm && s.Index%4 != 0 || p.corrupt {
		return
	}
	sum := s.Sum()
	if was, known := t.sums[s.Index]; known && was != sum {
		t.w.failf("%s: the tables at %d are not as those of another peer", p.ID, s.Index)
	}
	t.sums[s.Index] = sum
	if s.Index%32 == 0 {
		t.remembers(p, s)
	}
}

// remembers has every fresh ID be known, and not more IDs than may be.
func (t *truth) remembers(p *peer, s *replica.State) {
	if t.w.disabled.Has(replica.CheckDeduplication) {
		return
	}
	since := s.Clock.Add(-s.Window)
	for id, index := range t.ids {
		if index > s.Index || id.Time().Before(since) {
			continue
		}
		if at, _, known := s.IDs.Lookup(id); !known || at != index {
			t.w.failf("%s: at %d, the tables do not know the ID %v of entry %d, which is fresh", p.ID, s.Index, id, index)
		}
	}
	if most := 2 * t.w.maxIDs; most > 0 && s.IDs.Len() > most+t.asked {
		t.w.failf("%s: at %d, the tables have %d IDs, and may have %d, and %d of changes", p.ID, s.Index, s.IDs.Len(), most, t.asked)
	}
}

// applied compares state machines at one index.
func (t *truth) applied(p *peer) {
	if p.machine.index < 2 {
		return
	}
	if p.machine.index > t.last() {
		t.w.failf("%s: the state machine is at %d, and nothing behind %d is known to be committed", p.ID, p.machine.index, t.last())
	}
	f := t.at(p.machine.index)
	if f.chained && f.chain != p.machine.chain {
		t.w.failf("%s: the state machine at %d is not as that of another peer", p.ID, p.machine.index)
	}
	f.chain, f.chained = p.machine.chain, true
}

// writes looks at what a peer is about to write.
func (t *truth) writes(p *peer, work *core.Write) {
	for i, e := range work.Entries {
		at := position{e.GetIndex(), e.GetTerm()}
		is := written{sum: entry.Sum(e.GetData())}
		if i > 0 {
			is.before = work.Entries[i-1].GetTerm()
		} else if term, err := p.log.Term(at.index - 1); err == nil {
			is.before = term
		} else {
			continue // it is compacted
		}
		if was, known := t.written[at]; known && was != is {
			t.w.failf("%s writes entry %d of term %d, and another log has another one: %v, %v", p.ID, at.index, at.term, is, was)
		}
		t.written[at] = is
		if at.index > t.last() {
			continue
		}
		had, err := p.log.Term(at.index)
		if f := t.at(at.index); err == nil && had == f.term && at.term != had {
			t.w.failf("%s replaces entry %d of term %d, which is committed, by one of term %d", p.ID, at.index, had, at.term)
		}
	}
}

// publish looks at what a peer says of itself after each step.
func (p *peer) publish(out core.Output) {
	w, t := p.w, &p.w.truth
	s := p.core.Status()
	was := p.said
	p.said = published{
		term: s.Term, leads: s.Role == core.Leader, ready: s.Ready, lease: s.Lease, claims: was.claims,
	}
	if p.said.leads && !(was.leads && was.term == s.Term) {
		t.elected(p, s.Term)
	}
	if out.AllElections || len(out.Elections) > 0 || p.said.claims == nil {
		p.claim()
	}
	t.oneHolder(p)
	w.watchWiped(p)
	if w.say != nil && (was.term != s.Term || was.leads != p.said.leads || was.ready != s.Ready || (was.lease > p.Now()) != (s.Lease > p.Now())) {
		w.tracef("%s: %v of term %d, ready=%t, lease for %v, leader %s", p.ID, s.Role, s.Term, s.Ready, max(0, s.Lease-p.Now()), s.Leader.ID)
	}
}

// claim notes for which elections a candidate of this process is the first.
func (p *peer) claim() {
	claims := map[string]holder{}
	for name, candidate := range p.stands {
		if first, ok := p.core.Replica().Elections.Get(name).Head(); ok && first.ID == candidate && first.Peer == p.raft {
			claims[name] = holder{candidate, first.Token}
		}
	}
	p.said.claims = claims
}

// holds tells whether the peer's candidate may lead.
func (p *peer) holds(name string) (holder, bool) {
	h, ok := p.said.claims[name]
	return h, ok && p.up && p.said.lease > p.Now()
}

func (t *truth) oneHolder(p *peer) {
	if len(p.said.claims) == 0 || p.said.lease <= p.Now() {
		return
	}
	for i := range t.w.elected {
		name := electionName(i)
		h, ok := p.holds(name)
		if !ok {
			continue
		}
		for _, q := range t.w.peers {
			if q == p {
				continue
			}
			if other, too := q.holds(name); too {
				t.w.failf("%s and %s lead %s at the same time: %v for %v, %v for %v", p.ID, q.ID, name, h, p.said.lease-p.Now(), other, q.said.lease-q.Now())
			}
		}
		last := t.holders[name]
		switch {
		case last == h:
		case h.token > last.token: // the same candidate may have been taken out, and have come again
			t.w.tracef("%s: leads %s with %v", p.ID, name, h)
			t.counts.holders++
			t.holders[name] = h
		default:
			t.w.failf("%s leads %s with %v, and %v has led before", p.ID, name, h, last)
		}
	}
}

// elected looks at a new leader.
func (t *truth) elected(p *peer, term uint64) {
	t.terms++
	if other, known := t.leaders[term]; known && other != p.ID {
		t.w.failf("%s and %s are the leaders of term %d", p.ID, other, term)
	}
	t.leaders[term] = p.ID
	// It has everything that was committed in terms before; not what a later leader has, while it
	// was held up before it heard that it is elected.
	n := len(t.facts)
	for n > 0 && t.facts[n-1].in >= term {
		n--
	}
	if n == 0 {
		return
	}
	index := uint64(n) + 1
	if has := p.termAt(index); has != t.at(index).term && !p.compacted(index) {
		t.w.failf("%s leads term %d without entry %d of term %d: it has one of term %d there", p.ID, term, index, t.at(index).term, has)
	}
}

func (p *peer) compacted(index uint64) bool {
	first, err := p.log.FirstIndex()
	p.must(err)
	return index < first-1
}

// termAt is the term of an entry in the log or on the way there; 0 if there is none.
func (p *peer) termAt(index uint64) uint64 {
	for _, work := range slices.Backward(p.work) {
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
