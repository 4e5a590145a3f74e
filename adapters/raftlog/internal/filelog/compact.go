package filelog

import (
	"errors"
	"fmt"
	"path"
)

// Compact removes the entries up to and including an index from the log. A durable snapshot must
// contain the removed entries. The removal is durable when Compact returns. Term still returns the term
// of the last compacted entry. Compact deletes no file: [Log.Prunable] returns the files that may be
// deleted. If the index is already compacted, nothing changes. The errors are those of Append.
func (l *Log) Compact(through uint64) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.checkWritable(); err != nil {
		return err
	}
	if through <= l.mark.index {
		return nil
	}
	if through > l.last {
		return invalid("cannot compact through entry %d, because the log ends at %d", through, l.last)
	}
	m := mark{through, l.knownTerm(through)}
	if err := l.ensureSpace(markSize, nil); err != nil {
		return err
	}
	l.startRecord(markSize)
	l.buffer = m.appendTo(l.buffer)
	if err := l.writeRecord(typeMark, true); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.end = l.end.end
	l.mark = m
	l.dropCompacted()
	return nil
}

// Reset replaces the log by a snapshot whose last entry has the given index and term. After Reset, the
// log is empty, FirstIndex is index+1, and the commit index of the hard state is at least index. If the
// log has committed entries that the snapshot does not contain, Reset returns ErrTruncatesCommitted.
// Reset moves the replaced files to a directory old-<index+1>-<number of the new segment>. The other
// errors are those of Append.
func (l *Log) Reset(index, term uint64) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.checkWritable(); err != nil {
		return err
	}
	l.mu.RLock()
	protected, hs := max(l.state.commit, l.guard, l.mark.index), l.state
	l.mu.RUnlock()
	if index < protected {
		return fmt.Errorf("%w: a snapshot through %d, but everything through %d is committed, applied or compacted; "+
			"nothing was written", ErrTruncatesCommitted, index, protected)
	}
	if index == 0 {
		return invalid("the index of a snapshot cannot be 0")
	}
	hs.raiseCommit(index)
	m := mark{index, term}
	h := segmentHeader{id: segmentID{index + 1, l.active.id.number + 1}, reset: true, state: hs, mark: m}
	if err := l.startSegment(h, 0); err != nil {
		return err
	}
	l.mu.Lock()
	replaced := l.segments[:len(l.segments)-1]
	l.segments = []*segment{l.active}
	l.live, l.terms, l.last, l.mark, l.state = nil, nil, index, m, hs
	l.cache = cache{limit: l.options.CacheSize}
	l.generation++
	l.mu.Unlock()
	var names []string
	var errs []error
	for _, s := range replaced {
		s.readers.Wait()
		names = append(names, path.Base(s.name))
		errs = append(errs, s.file.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return l.failPermanently("closing what was reset in", l.dir, err)
	}
	if err := l.moveAside(h.id, names); err != nil {
		return l.failPermanently("moving aside what was reset in", l.dir, err)
	}
	return nil
}

// moveAside moves the named segment files into a directory of their own. The segment by, with which a Reset
// began a new log, has replaced them. If a crash interrupts the move, the next Open completes it.
func (l *Log) moveAside(by segmentID, names []string) error {
	if len(names) == 0 {
		return nil
	}
	aside := path.Join(l.dir, fmt.Sprintf("%s%016x-%08x", oldPrefix, by.first, by.number))
	if err := l.fs.MkdirAll(aside); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	for _, name := range names {
		if err := l.fs.Rename(path.Join(l.dir, name), path.Join(aside, name)); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(aside); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}
