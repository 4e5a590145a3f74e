package simulation

// What a disk must have after a crash.

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// durable is what is known of a log on disk: the works that were done, and from unsynced on
// those that a crash may undo.
type durable struct {
	before, term uint64   // the last compacted entry
	terms        []uint64 // of the entries behind it
	hard         hard
	unsynced     []*core.Write
}

type hard struct{ term, vote uint64 }

// do does a work.
func (d *durable) do(w *core.Write) {
	d.unsynced = append(d.unsynced, w)
	if w.Sync || w.Snapshot != nil {
		for _, w := range d.unsynced {
			d.change(w)
		}
		d.unsynced = nil
	}
}

func (d *durable) reset(s *raftpb.Snapshot) {
	d.before, d.term, d.terms = s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm(), nil
}

func (d *durable) change(w *core.Write) {
	if w.Snapshot != nil {
		d.reset(w.Snapshot)
	}
	if w.HardState != nil {
		d.hard = hard{w.HardState.GetTerm(), w.HardState.GetVote()}
	}
	for i, e := range w.Entries {
		if e.GetIndex() <= d.before {
			continue
		}
		if i == 0 || e.GetIndex() == d.before+1 {
			d.terms = d.terms[:e.GetIndex()-d.before-1]
		}
		d.terms = append(d.terms, e.GetTerm())
	}
	if w.Compact > d.before {
		d.term = d.terms[w.Compact-d.before-1]
		d.terms = slices.Clone(d.terms[w.Compact-d.before:])
		d.before = w.Compact
	}
}

func (d *durable) equal(e *durable) bool {
	return d.before == e.before && d.term == e.term && d.hard == e.hard && slices.Equal(d.terms, e.terms)
}

// recovered checks what the log is after a crash: what was acknowledged, and of what was
// under way the first so many works.
func (p *peer) recovered() {
	var is durable
	first, err := p.log.FirstIndex()
	p.must(err)
	last, err := p.log.LastIndex()
	p.must(err)
	is.before = first - 1
	is.term, err = p.log.Term(is.before)
	p.must(err)
	for i := first; i <= last; i++ {
		term, err := p.log.Term(i)
		p.must(err)
		is.terms = append(is.terms, term)
	}
	if hs := p.log.HardState(); hs != nil {
		is.hard = hard{hs.GetTerm(), hs.GetVote()}
	}
	may := p.stored
	may.terms, may.unsynced = slices.Clone(may.terms), nil
	found := may.equal(&is)
	for _, w := range append(p.stored.unsynced, p.begun...) {
		if found {
			break
		}
		if w.Snapshot != nil {
			may.reset(w.Snapshot)
			found = found || may.equal(&is)
		}
		if w.Compact != 0 && !found { // the entries, and then the mark
			part := *w
			part.Compact = 0
			may.change(&part)
			found = found || may.equal(&is)
		}
		may.change(w)
		found = found || may.equal(&is)
	}
	if !found {
		p.w.failf("%s: the log was %v when the power failed, with %d works not acknowledged, and is %v now",
			p.ID, p.stored, len(p.stored.unsynced)+len(p.begun), is)
	}
	is.unsynced = nil
	p.stored, p.begun = is, nil
}
