package filelog

// Forgetting entries that a snapshot has.

import (
	"errors"
	"fmt"
	"path"
)

// Compact forgets the entries through that index, which a durable snapshot must have: they are
// gone when it returns, and stay so. Term still knows the last of them. No file is deleted;
// see [Log.Prunable]. An index that is compacted already changes nothing. Errors are as
// Append's.
func (l *Log) Compact(through uint64) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if through <= l.mark.index {
		return nil
	}
	if through > l.last {
		return invalid("compaction through %d, where the log ends at %d", through, l.last)
	}
	m := mark{through, l.termLocked(through)}
	if err := l.makeRoom(markSize, nil); err != nil {
		return err
	}
	l.startRecord(markSize)
	l.buf = m.append(l.buf)
	if err := l.write(typeMark, true); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.end = l.at.end
	l.mark = m
	l.compacted()
	return nil
}

// Reset begins the log anew after a snapshot that replaces it, whose last entry has that index
// and term: it is empty then, with FirstIndex index+1, and a hard state with a commit index
// below that gets index for it. It refuses to forget what is committed and not in the snapshot
// (ErrTruncatesCommitted). The files of before are moved into a directory old-<index+1>-<number
// of the new segment>. Other errors are as Append's.
func (l *Log) Reset(index, term uint64) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.mu.RLock()
	keep, hs := max(l.state.commit, l.guard, l.mark.index), l.state
	l.mu.RUnlock()
	if index < keep {
		return fmt.Errorf("%w: a snapshot through %d, where everything through %d is committed, applied or compacted; "+
			"nothing was written", ErrTruncatesCommitted, index, keep)
	}
	if index == 0 {
		return invalid("a snapshot through index 0")
	}
	hs.raise(index)
	m := mark{index, term}
	h := header{place: place{index + 1, l.active.seq + 1}, reset: true, state: hs, mark: m}
	if err := l.create(h, 0); err != nil {
		return err
	}
	l.mu.Lock()
	old := l.segs[:len(l.segs)-1]
	l.segs = []*segment{l.active}
	l.live, l.runs, l.last, l.mark, l.state = nil, nil, index, m, hs
	l.cache = cache{limit: l.o.CacheSize}
	l.gen++
	l.mu.Unlock()
	var names []string
	var errs []error
	for _, s := range old {
		s.users.Wait()
		names = append(names, path.Base(s.name))
		errs = append(errs, s.file.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return l.die("closing what was reset in", l.dir, err)
	}
	if err := l.moveAside(h.place, names); err != nil {
		return l.die("moving aside what was reset in", l.dir, err)
	}
	return nil
}

// moveAside moves segments that the one at p has replaced into a directory. What a crash
// leaves of that, the next Open does.
func (l *Log) moveAside(p place, names []string) error {
	if len(names) == 0 {
		return nil
	}
	aside := path.Join(l.dir, fmt.Sprintf("%s%016x-%08x", oldPrefix, p.first, p.seq))
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
