package filelog

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// Batch is what one call of Append writes atomically: after a crash, the log contains either the whole
// batch or nothing of it.
type Batch struct {
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// Sync makes Append wait until this batch and all previous batches are durable.
	Sync bool
}

// Append appends a batch. The log keeps the entries, so the caller must not modify them any more.
//
// The indexes of the entries must be consecutive. The first index must be at most LastIndex+1. If it is
// less, the entries replace all entries from this index on. Append ignores entries that are compacted. If
// the last index is compacted, or less than the commit index or the index of Guard, the log already contains
// all of the entries, and Append replaces nothing.
//
// The errors ErrTruncatesCommitted, ErrInvalid and ErrNoSpace mean that nothing was written. After an
// error of the disk it is unknown which records are durable. The log then accepts no more writes: all
// later calls return the same error.
func (l *Log) Append(b Batch) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.checkWritable(); err != nil {
		return err
	}
	hs, entries, err := l.validate(b)
	if err != nil {
		return err
	}
	if !hs.exists && len(entries) == 0 {
		return l.syncIf(b.Sync)
	}
	size := batchLength(hs, entries)
	if size > maxPayload {
		return invalid("a batch of %d bytes is too large", size)
	}
	if err := l.ensureSpace(size, entries); err != nil {
		return err
	}
	l.startRecord(size)
	l.buffer, l.offsets = appendBatch(l.buffer, hs, entries, l.offsets[:0])
	start := uint32(l.end.end)
	if err := l.writeRecord(typeBatch, b.Sync); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.end = l.end.end
	if hs.exists {
		l.state = hs
	}
	if len(entries) > 0 {
		l.addEntries(entries, start)
	}
	return nil
}

// addEntries makes entries visible to readers. l.offsets contains the offsets of the entries within
// their record, which was written at the offset start. The caller holds l.mu.
func (l *Log) addEntries(entries []*raftpb.Entry, start uint32) {
	first := entries[0].GetIndex()
	l.truncateIndex(first)
	s := l.active
	if len(s.offsets) == 0 {
		l.live = append(l.live, s)
	}
	for i, e := range entries {
		s.offsets = append(s.offsets, start+l.offsets[i])
		l.terms = l.terms.add(e.GetIndex(), e.GetTerm())
	}
	s.count = len(s.offsets)
	l.last = first + uint64(len(entries)) - 1
	l.cache.addEntries(entries)
}

// checkWritable returns the reason why the log cannot be written, or nil. The caller holds l.writeMu.
func (l *Log) checkWritable() error {
	switch {
	case l.closed: // Close holds both mutexes when it sets closed
		return ErrClosed
	case l.options.ReadOnly:
		return ErrReadOnly
	}
	return l.failure
}

// failPermanently records an error of the disk, and returns it. After that, the log accepts no more writes: it is
// unknown which records are durable, and a later sync that succeeds would not change that.
func (l *Log) failPermanently(operation, name string, err error) error {
	l.failure = fmt.Errorf("filelog: %s %s failed, and the log accepts no more writes: %w", operation, name, err)
	return l.failure
}

// validate checks that a batch can follow the content of the log. It returns the hard state and those
// entries of the batch that must be written.
func (l *Log) validate(b Batch) (hardState, []*raftpb.Entry, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	hs, entries := hardStateOf(b.HardState), b.Entries
	if hs.exists && l.state.exists {
		switch {
		case hs.term < l.state.term:
			return hs, nil, invalid("the hard state has term %d, but the log already has term %d", hs.term, l.state.term)
		case hs.term == l.state.term && l.state.vote != 0 && hs.vote != l.state.vote:
			return hs, nil, invalid("a vote for %x in term %d, in which the log already has a vote for %x", hs.vote, hs.term, l.state.vote)
		}
		hs.raiseCommit(l.state.commit)
	}
	hs.raiseCommit(l.mark.index)
	last := l.last
	if len(entries) > 0 {
		var err error
		if entries, err = l.validateEntries(entries); err != nil {
			return hs, nil, err
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1].GetIndex()
		}
	}
	if hs.exists && hs.commit > last {
		return hs, nil, invalid("commit index %d is beyond the last entry, %d", hs.commit, last)
	}
	return hs, entries, nil
}

// validateEntries checks the entries of a batch, and returns those that must be written. The caller
// holds l.mu.
func (l *Log) validateEntries(entries []*raftpb.Entry) ([]*raftpb.Entry, error) {
	first, last := entries[0].GetIndex(), entries[len(entries)-1].GetIndex()
	if first == 0 || first > l.last+1 {
		return nil, invalid("the entries begin at %d, but the log ends at %d", first, l.last)
	}
	protected := min(max(l.state.commit, l.guard, l.mark.index), l.last)
	var previous uint64 // the term of the previous entry; 0 if the log does not know it
	if first > l.mark.index {
		previous = l.knownTerm(first - 1)
	}
	for i, e := range entries {
		index, term := e.GetIndex(), e.GetTerm()
		switch {
		case index != first+uint64(i):
			return nil, invalid("entry %d is followed by entry %d", first+uint64(i)-1, index)
		case term < previous:
			return nil, invalid("entry %d has term %d, but the previous entry has term %d", index, term, previous)
		case index >= l.mark.index && index <= protected && term != l.knownTerm(index):
			return nil, fmt.Errorf("%w: entry %d has term %d and would get term %d; committed, applied or compacted is "+
				"everything through %d; nothing was written", ErrTruncatesCommitted, index, l.knownTerm(index), term, protected)
		case e.GetType() < 0 || e.GetType() > math.MaxUint8:
			return nil, invalid("entry %d has the invalid type %d", index, e.GetType())
		}
		previous = term
	}
	if last < protected || last <= l.mark.index {
		return nil, nil
	}
	if first <= l.mark.index {
		entries = entries[l.mark.index+1-first:]
	}
	return entries, nil
}

// startRecord empties l.buffer for a new record, and makes room for a payload of the given size.
func (l *Log) startRecord(size int64) {
	if cap(l.buffer) < headSize+int(size) || cap(l.buffer) > 16<<20 {
		l.buffer = make([]byte, 0, headSize+max(int(size), 64<<10))
	}
	l.buffer = append(l.buffer[:0], make([]byte, headSize)...)
}

// writeRecord writes the record in l.buffer to the active segment, and syncs the segment if sync is
// true.
func (l *Log) writeRecord(kind byte, sync bool) error {
	head := recordHead{kind: kind, number: l.end.number + 1, durable: l.durable}
	crc := l.active.id.sealRecord(l.buffer, l.end.end, head, l.end.crc)
	if _, err := l.active.file.WriteAt(l.buffer, l.end.end); err != nil {
		return l.failPermanently("writing to", l.active.name, err)
	}
	l.end = l.end.advance(len(l.buffer), head.number, crc)
	return l.syncIf(sync)
}

// syncIf syncs the active segment if sync is true and some records are not durable.
func (l *Log) syncIf(sync bool) error {
	if !sync || l.durable == l.end.number {
		return nil
	}
	if err := l.active.file.Sync(); err != nil {
		return l.failPermanently("syncing", l.active.name, err)
	}
	l.durable = l.end.number
	return nil
}
