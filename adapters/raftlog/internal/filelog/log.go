package filelog

// The log, and what is asked of it.

import (
	"errors"
	"fmt"
	"io"
	"path"
	"sort"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// Options are how a log is kept. Zero values are the defaults.
type Options struct {
	// SegmentSize is what a segment is allocated with, in bytes; 64 MiB unless told, at most
	// 2 GiB. One larger batch makes a larger segment.
	SegmentSize int64
	// CacheSize is how much of the newest entries is kept in memory, in bytes; 64 MiB unless
	// told, and negative for nothing. Older ones are read from the disk.
	CacheSize int64
	// ReadOnly opens a log that another process may be using: nothing is changed and no lock
	// is taken. What that process appends later is not seen.
	ReadOnly bool
}

const defaultSize = 64 << 20

// Log is an open log. One goroutine at a time may append (Append, Compact, Reset); all others
// read at the same time, without waiting for the disk on its behalf.
type Log struct {
	fs   disk.FS
	dir  string
	o    Options
	lock io.Closer

	// What appending works with; wmu is held across disk operations.
	wmu    sync.Mutex
	err    error // why the log takes nothing any more
	active *segment
	at     walked // where the active segment ends
	synced uint64 // number of the last durable record
	spare  disk.File
	room   int64 // what the spare was allocated with
	// noSpace is why the last attempt to allocate the next segment failed; nil if it did not. An
	// append that does not depend on it tries again when the log has reached retryAt.
	noSpace error
	retryAt int64
	buf     []byte
	offs    []uint32

	// What reading works with; mu is held for moments.
	mu     sync.RWMutex
	closed bool
	segs   []*segment // all, by number
	live   []*segment // those with entries that count and are not compacted, by index
	last   uint64
	runs   runs
	state  state
	mark   mark
	guard  uint64
	cache  cache
	gen    uint64 // counts what makes entries another's
}

// segment is one file. end, offs and n are guarded by the log's mu.
type segment struct {
	place
	name  string
	file  disk.File
	size  int64 // of the file; of no use to readers
	end   int64 // written
	offs  []uint32
	n     int            // entries that count, even if offs was dropped
	users sync.WaitGroup // readers of file; added under mu while the segment is in segs
}

func (s *segment) last() uint64 { return s.first + uint64(s.n) - 1 }

// HardState is the newest hard state, synced or not; nil if there was none. Its commit index is
// never lower than one before, nor than the compaction mark.
func (l *Log) HardState() *raftpb.HardState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.message()
}

// FirstIndex is the index of the first entry that is not compacted, as raft.Storage has it.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, ErrClosed
	}
	return l.mark.index + 1, nil
}

// LastIndex is the index of the last entry, as raft.Storage has it; FirstIndex-1 if there is
// none.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, ErrClosed
	}
	return l.last, nil
}

// Term is that of entry i, as raft.Storage has it: of the last compacted one too. The errors
// are raft.ErrCompacted and raft.ErrUnavailable.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return 0, ErrClosed
	case i < l.mark.index:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	}
	return l.termLocked(i), nil
}

// termLocked is the term of an entry from the mark to the last; l.mu is held.
func (l *Log) termLocked(i uint64) uint64 {
	if i == l.mark.index {
		return l.mark.term
	}
	return l.runs.term(i)
}

// Guard keeps what is applied: from now on entries at or below index are not replaced by ones
// of another term, as those are not that the hard state says are committed. Any goroutine may
// call. It is not kept on disk.
func (l *Log) Guard(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guard = max(l.guard, index)
}

const (
	chunk    = 1024    // entries that are looked up at a time
	maxSpan  = 1 << 20 // bytes that are read at a time, if it is more than one entry
	entryGap = 1 << 16 // bytes that are read for an entry whose end is not known
)

// Entries returns the entries from lo to hi-1, as raft.Storage has it: as many as have
// maxSize bytes together, encoded as protobuf messages, but one at least. There may be fewer
// if some are replaced at the same time. The errors are raft.ErrCompacted, raft.ErrUnavailable,
// ErrCorrupt and the disk's. Entries must not be modified.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	var (
		all  []*raftpb.Entry
		size uint64
		gen  uint64
	)
	for lo < hi || all == nil {
		part, g, err := l.some(lo, hi, maxSize-size)
		if len(all) > 0 && (err != nil || g != gen) {
			return all, nil // what is asked for has changed in between
		}
		if err != nil || len(part) == 0 {
			return nil, err
		}
		gen = g
		for i, e := range part {
			size += encodedSize(e)
			if size > maxSize && (len(all) > 0 || i > 0) {
				return append(all, part[:i]...), nil
			}
		}
		all = append(all, part...)
		lo += uint64(len(part))
		if size >= maxSize {
			break
		}
	}
	return all, nil
}

// some returns entries from lo on, in new memory, and the generation that they are of. It
// reads about as much as budget at most.
func (l *Log) some(lo, hi, budget uint64) ([]*raftpb.Entry, uint64, error) {
	l.mu.RLock()
	gen := l.gen
	switch {
	case l.closed:
		l.mu.RUnlock()
		return nil, gen, ErrClosed
	case lo <= l.mark.index:
		l.mu.RUnlock()
		return nil, gen, raft.ErrCompacted
	case hi > l.last+1:
		l.mu.RUnlock()
		return nil, gen, raft.ErrUnavailable
	case lo >= hi:
		l.mu.RUnlock()
		return nil, gen, nil
	}
	hi = min(hi, lo+chunk)
	if part := l.cache.get(lo, hi); part != nil {
		l.mu.RUnlock()
		return part, gen, nil
	}
	s := l.live[sort.Search(len(l.live), func(i int) bool { return l.live[i].first > lo })-1]
	hi = min(hi, s.first+uint64(len(s.offs)))
	from := lo - s.first
	budget = min(max(budget, 1), maxSpan)
	n := sort.Search(int(hi-lo)-1, func(i int) bool {
		return uint64(s.offs[from+uint64(i)+1]-s.offs[from]) >= budget
	}) + 1
	offs := append([]uint32(nil), s.offs[from:from+uint64(n)]...)
	written := s.end
	end := written
	if i := from + uint64(n); i < uint64(len(s.offs)) {
		end = int64(s.offs[i])
	}
	s.users.Add(1)
	l.mu.RUnlock()
	defer s.users.Done()
	part, err := s.read(lo, offs, end, written)
	if err != nil {
		l.mu.RLock()
		defer l.mu.RUnlock()
		if l.closed {
			err = ErrClosed
		}
	}
	return part, gen, err
}

// read reads the entries at offs, which are followed by something else at end or before. The
// segment is written through written.
func (s *segment) read(lo uint64, offs []uint32, end, written int64) ([]*raftpb.Entry, error) {
	begin, last := int64(offs[0]), int64(offs[len(offs)-1])
	end = min(end, last+entryGap)
	buf := make([]byte, end-begin)
	// The file may end in the padding of the last record.
	if n, err := s.file.ReadAt(buf, begin); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("filelog: reading %s at offset %d: %w", s.name, begin, err)
	} else {
		buf = buf[:n]
	}
	slab := make([]decoded, len(offs))
	part := make([]*raftpb.Entry, len(offs))
	for i, off := range offs {
		raw := buf[min(int64(off)-begin, int64(len(buf))):]
		n, ok := entryLength(raw)
		if ok && n > int64(len(raw)) && i == len(offs)-1 && int64(off)+n <= written {
			raw = make([]byte, n)
			if err := s.fill(raw, int64(off)); err != nil {
				return nil, err
			}
		}
		err := fmt.Errorf("entry %d does not end", lo+uint64(i))
		if ok && n <= int64(len(raw)) {
			err = slab[i].decode(lo+uint64(i), raw[:n])
		}
		if err != nil {
			return nil, corrupt(s.name, int64(off), "%v", err)
		}
		part[i] = &slab[i].entry
	}
	return part, nil
}

func (s *segment) fill(b []byte, off int64) error {
	n, err := s.file.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return corrupt(s.name, off+int64(n), "the file ends")
	}
	return fmt.Errorf("filelog: reading %s at offset %d: %w", s.name, off, err)
}

// Segment is one file of the log.
type Segment struct {
	Name        string // as the FS knows it
	First, Last uint64 // the entries that count; Last is First-1 if there is none
	Size        int64  // bytes written
	Sealed      bool   // it is not written any more
}

// Segments lists the log's files, the oldest first.
func (l *Log) Segments() []Segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := make([]Segment, len(l.segs))
	for i, s := range l.segs {
		list[i] = Segment{s.name, s.first, s.last(), s.end, i < len(l.segs)-1}
	}
	return list
}

// Prunable lists the files, by their names in the FS, that may be deleted once the entries through an index are not
// needed: sealed ones that hold only entries at or below it which are compacted, and nothing
// that an older one must be there for. The oldest are to be deleted first.
func (l *Log) Prunable(through uint64) []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	through = min(through, l.mark.index)
	var names []string
	for _, s := range l.segs[:max(len(l.segs)-1, 0)] {
		if s.n > 0 && s.last() > through {
			break
		}
		names = append(names, s.name)
	}
	return names
}

// Close closes the log, and syncs it first if there is something to. It waits for readers;
// everything later returns ErrClosed. Closing again does nothing.
func (l *Log) Close() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if was {
		return nil
	}
	var errs []error
	if l.err == nil && l.active != nil && !l.o.ReadOnly && l.synced < l.at.number {
		errs = append(errs, l.active.file.Sync())
	}
	for _, s := range l.segs {
		s.users.Wait()
		errs = append(errs, s.file.Close())
	}
	if l.spare != nil {
		errs = append(errs, l.spare.Close(), l.fs.Remove(path.Join(l.dir, spareName)))
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	l.cache = cache{}
	return errors.Join(errs...)
}
