package simulation

// This file computes what the disk of a peer must contain after a crash.

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// durableLog is the state of a log that is durable, and the later Writes that a crash may undo.
type durableLog struct {
	before, term uint64   // the index and the term of the last compacted entry
	terms        []uint64 // the terms of the entries after the last compacted one
	vote         termVote
	unsynced     []*core.Write
}

type termVote struct{ term, vote uint64 }

// addWrite records a Write that the disk has completed.
func (d *durableLog) addWrite(w *core.Write) {
	d.unsynced = append(d.unsynced, w)
	if w.Sync || w.Snapshot != nil {
		for _, w := range d.unsynced {
			d.applyWrite(w)
		}
		d.unsynced = nil
	}
}

func (d *durableLog) restartAt(s *raftpb.Snapshot) {
	d.before, d.term, d.terms = s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm(), nil
}

func (d *durableLog) applyWrite(w *core.Write) {
	if w.Snapshot != nil {
		d.restartAt(w.Snapshot)
	}
	if w.HardState != nil {
		d.vote = termVote{w.HardState.GetTerm(), w.HardState.GetVote()}
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

func (d *durableLog) equal(e *durableLog) bool {
	return d.before == e.before && d.term == e.term && d.vote == e.vote && slices.Equal(d.terms, e.terms)
}

// checkDurable checks the log that was opened after a crash: it must contain all Writes that were
// acknowledged, and a prefix of those in flight.
func (p *peer) checkDurable() {
	var actual durableLog
	first, err := p.log.FirstIndex()
	p.requireNoError(err)
	last, err := p.log.LastIndex()
	p.requireNoError(err)
	actual.before = first - 1
	actual.term, err = p.log.Term(actual.before)
	p.requireNoError(err)
	for i := first; i <= last; i++ {
		term, err := p.log.Term(i)
		p.requireNoError(err)
		actual.terms = append(actual.terms, term)
	}
	if hs := p.log.HardState(); hs != nil {
		actual.vote = termVote{hs.GetTerm(), hs.GetVote()}
	}
	possible := p.durable
	possible.terms, possible.unsynced = slices.Clone(possible.terms), nil
	found := possible.equal(&actual)
	for _, w := range append(p.durable.unsynced, p.interrupted...) {
		if found {
			break
		}
		if w.Snapshot != nil {
			possible.restartAt(w.Snapshot)
			found = found || possible.equal(&actual)
		}
		if w.Compact != 0 && !found { // a crash may undo only the compaction of a Write
			part := *w
			part.Compact = 0
			possible.applyWrite(&part)
			found = found || possible.equal(&actual)
		}
		possible.applyWrite(w)
		found = found || possible.equal(&actual)
	}
	if !found {
		p.h.failf("%s: the log was %v when the power failed, with %d unacknowledged Writes, and is %v now",
			p.ID, p.durable, len(p.durable.unsynced)+len(p.interrupted), actual)
	}
	actual.unsynced = nil
	p.durable, p.interrupted = actual, nil
}
