package filelog

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

// Options configures a log. Zero values are replaced by defaults.
type Options struct {
	// SegmentSize is the number of bytes to allocate for a segment, at most 2 GiB. The default is 64
	// MiB. A batch that is larger is written to a larger segment.
	SegmentSize int64
	// CacheSize is the size in bytes of the newest entries that the log keeps in memory. The default is
	// 64 MiB, and a negative size disables the cache. The log reads other entries from the disk.
	CacheSize int64
	// ReadOnly opens a log that another process may be using. The log is neither changed nor locked,
	// and records that the other process appends after Open are not visible.
	ReadOnly bool
}

const defaultSize = 64 << 20

// Log is an open log. One goroutine at a time may change the log by Append, Compact and Reset. Other
// goroutines can read concurrently, and do not wait for writes to the disk.
type Log struct {
	fs      disk.FS
	dir     string
	options Options
	lock    io.Closer

	// The following fields are the state of the writer. The writer holds writeMu during disk
	// operations.
	writeMu sync.Mutex
	failure error // why the log accepts no more writes; nil if it accepts writes
	active  *segment
	end     position // the position after the last record of the active segment
	durable uint64   // the number of the last durable record
	// spare is the file that becomes the next segment, or nil. spareSize is the size that is allocated
	// for it.
	spare     disk.File
	spareSize int64
	// noSpace is the error of the last attempt to allocate the next segment, or nil. An Append that
	// does not require the next segment tries again when the active segment is filled to retryAt.
	noSpace error
	retryAt int64
	buffer  []byte   // the record that is being written
	offsets []uint32 // the offsets of the entries in buffer

	// The following fields are the state for readers. The writer does not hold mu during disk
	// operations.
	mu         sync.RWMutex
	closed     bool
	segments   []*segment // all segments, ordered by number
	live       []*segment // the segments with entries that are valid and not compacted, by index
	last       uint64     // the index of the last entry
	terms      termRuns
	state      hardState
	mark       mark
	guard      uint64
	cache      cache
	generation uint64 // incremented whenever entries are replaced, so that Entries does not mix entries of two states
}

// segment is one file of the log. Log.mu guards the fields end, offsets and count.
type segment struct {
	id   segmentID
	name string
	file disk.File
	size int64 // the size of the file; only the writer uses it
	end  int64 // the offset after the last record
	// offsets are the offsets of the valid entries in the file, or nil if all of them are compacted.
	// count is the number of valid entries in both cases.
	offsets []uint32
	count   int
	// readers counts the goroutines that are reading the file, so that the writer closes the file only when
	// no goroutine reads it. A goroutine increments readers while it holds Log.mu and the segment is in
	// Log.segments.
	readers sync.WaitGroup
}

func (s *segment) lastIndex() uint64 { return s.id.first + uint64(s.count) - 1 }

// HardState returns the newest hard state, which may not be durable yet, or nil if there is none. Its
// commit index never decreases, and is at least the index up to which the log is compacted.
func (l *Log) HardState() *raftpb.HardState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.message()
}

// FirstIndex implements raft.Storage. It returns the index of the first entry that is not
// compacted.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, ErrClosed
	}
	return l.mark.index + 1, nil
}

// LastIndex implements raft.Storage. It returns the index of the last entry, or FirstIndex-1 if
// the log is empty.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, ErrClosed
	}
	return l.last, nil
}

// Term implements raft.Storage. It returns the term of entry i, which must be the last compacted entry
// or a later entry. The errors are raft.ErrCompacted, raft.ErrUnavailable and ErrClosed.
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
	return l.knownTerm(i), nil
}

// knownTerm returns the term of entry i, which must be the last compacted entry or a later entry. The
// caller holds l.mu.
func (l *Log) knownTerm(i uint64) uint64 {
	if i == l.mark.index {
		return l.mark.term
	}
	return l.terms.termAt(i)
}

// Guard protects entries that were applied: entries up to and including index cannot be replaced by
// entries of another term any more, as if index were the commit index of the hard state. The log does
// not store the guard on disk. Any goroutine may call Guard.
func (l *Log) Guard(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guard = max(l.guard, index)
}

const (
	maxReadEntries = 1024    // the maximum number of entries to read from a segment at a time
	maxReadBytes   = 1 << 20 // the maximum size of a read in bytes, unless a single entry is larger
	lastEntryBytes = 1 << 16 // the size of the first read for the last entry, whose length is unknown
)

// Entries implements raft.Storage. It returns the entries from lo to hi-1: at least one, and as many as
// have at most maxSize bytes together, encoded as protobuf messages. It may return fewer entries if the
// writer replaces entries during the call. The errors are raft.ErrCompacted, raft.ErrUnavailable,
// ErrClosed, ErrCorrupt and those of the disk. The caller must not modify the entries.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	var (
		all        []*raftpb.Entry
		size       uint64
		generation uint64
	)
	for lo < hi || all == nil {
		part, g, err := l.readPart(lo, hi, maxSize-size)
		if len(all) > 0 && (err != nil || g != generation) {
			return all, nil // the log has changed since the previous part was read, so return only what was read before
		}
		if err != nil || len(part) == 0 {
			return nil, err
		}
		generation = g
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

// readPart returns the first of the entries from lo to hi-1, at least one if lo < hi, in a new slice. It
// reads at most about budget bytes from the disk. It also returns the log's generation at the time of
// reading.
func (l *Log) readPart(lo, hi, budget uint64) ([]*raftpb.Entry, uint64, error) {
	l.mu.RLock()
	generation := l.generation
	switch {
	case l.closed:
		l.mu.RUnlock()
		return nil, generation, ErrClosed
	case lo <= l.mark.index:
		l.mu.RUnlock()
		return nil, generation, raft.ErrCompacted
	case hi > l.last+1:
		l.mu.RUnlock()
		return nil, generation, raft.ErrUnavailable
	case lo >= hi:
		l.mu.RUnlock()
		return nil, generation, nil
	}
	hi = min(hi, lo+maxReadEntries)
	if part := l.cache.get(lo, hi); part != nil {
		l.mu.RUnlock()
		return part, generation, nil
	}
	s := l.live[sort.Search(len(l.live), func(i int) bool { return l.live[i].id.first > lo })-1]
	hi = min(hi, s.id.first+uint64(len(s.offsets)))
	from := lo - s.id.first
	budget = min(max(budget, 1), maxReadBytes)
	n := sort.Search(int(hi-lo)-1, func(i int) bool {
		return uint64(s.offsets[from+uint64(i)+1]-s.offsets[from]) >= budget
	}) + 1
	offsets := append([]uint32(nil), s.offsets[from:from+uint64(n)]...)
	written := s.end
	end := written
	if i := from + uint64(n); i < uint64(len(s.offsets)) {
		end = int64(s.offsets[i])
	}
	s.readers.Add(1)
	l.mu.RUnlock()
	defer s.readers.Done()
	part, err := s.readEntries(lo, offsets, end, written)
	if err != nil {
		l.mu.RLock()
		defer l.mu.RUnlock()
		if l.closed {
			err = ErrClosed
		}
	}
	return part, generation, err
}

// readEntries reads the entries at the given offsets of the segment, the first of which has the index
// lo. The last of these entries ends at or before the offset end. The records of the segment end at the
// offset written.
func (s *segment) readEntries(lo uint64, offsets []uint32, end, written int64) ([]*raftpb.Entry, error) {
	start, last := int64(offsets[0]), int64(offsets[len(offsets)-1])
	end = min(end, last+lastEntryBytes)
	buf := make([]byte, end-start)
	// Ignore io.EOF: the last record may end without padding, so the file can be shorter than buf.
	n, err := s.file.ReadAt(buf, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("filelog: reading %s at offset %d: %w", s.name, start, err)
	}
	buf = buf[:n]
	decoded := make([]decodedEntry, len(offsets))
	part := make([]*raftpb.Entry, len(offsets))
	for i, offset := range offsets {
		raw := buf[min(int64(offset)-start, int64(len(buf))):]
		n, ok := entryLength(raw)
		if ok && n > int64(len(raw)) && i == len(offsets)-1 && int64(offset)+n <= written {
			raw = make([]byte, n)
			if err := s.readFull(raw, int64(offset)); err != nil {
				return nil, err
			}
		}
		if !ok || n > int64(len(raw)) {
			return nil, corrupt(s.name, int64(offset), "entry %d is incomplete", lo+uint64(i))
		}
		if err := decoded[i].decode(lo+uint64(i), raw[:n]); err != nil {
			return nil, corrupt(s.name, int64(offset), "%v", err)
		}
		part[i] = &decoded[i].entry
	}
	return part, nil
}

func (s *segment) readFull(b []byte, offset int64) error {
	n, err := s.file.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return corrupt(s.name, offset+int64(n), "the file ends before the end of the entry")
	}
	return fmt.Errorf("filelog: reading %s at offset %d: %w", s.name, offset, err)
}

// truncateIndex removes the entries with the given index and all later ones from memory. The caller
// holds l.mu.
func (l *Log) truncateIndex(index uint64) {
	if index > l.last {
		return
	}
	l.generation++
	l.terms = l.terms.truncate(index)
	l.cache.truncate(index)
	for len(l.live) > 0 {
		s := l.live[len(l.live)-1]
		if s.id.first < index {
			s.offsets = s.offsets[:min(uint64(len(s.offsets)), index-s.id.first)]
			s.count = len(s.offsets)
			break
		}
		s.offsets, s.count = nil, 0
		l.live = l.live[:len(l.live)-1]
	}
	l.last = index - 1
}

// dropCompacted removes the compacted entries from memory. The caller holds l.mu.
func (l *Log) dropCompacted() {
	l.state.raiseCommit(l.mark.index)
	for len(l.live) > 0 && l.live[0] != l.active && l.live[0].lastIndex() <= l.mark.index {
		l.live[0].offsets = nil
		l.live = l.live[1:]
	}
	if len(l.live) == 0 {
		l.terms = nil
	} else {
		l.terms = l.terms.dropBefore(l.mark.index + 1)
	}
	l.cache.dropThrough(l.mark.index)
}

// Segment describes a file of the log.
type Segment struct {
	Name        string // the path of the file in the disk.FS
	First, Last uint64 // the indexes of the first and the last valid entry; Last is First-1 if there are none
	Size        int64  // the size of the records in bytes
	Sealed      bool   // whether the log does not write to the file any more
}

// Segments returns the files of the log, the oldest one first.
func (l *Log) Segments() []Segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := make([]Segment, len(l.segments))
	for i, s := range l.segments {
		list[i] = Segment{s.name, s.id.first, s.lastIndex(), s.end, i < len(l.segments)-1}
	}
	return list
}

// Prunable returns the paths of the files that the caller may delete if it does not need the entries up
// to and including an index any more. These files are sealed, contain only compacted entries up to that
// index, and no older file depends on them. The caller must delete them in the order of the result.
func (l *Log) Prunable(through uint64) []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	through = min(through, l.mark.index)
	var names []string
	for _, s := range l.segments[:max(len(l.segments)-1, 0)] {
		if s.count > 0 && s.lastIndex() > through {
			break
		}
		names = append(names, s.name)
	}
	return names
}

// Close makes all records durable and closes the log. It waits for readers. Later calls of other
// methods return ErrClosed, and later calls of Close do nothing.
func (l *Log) Close() error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.mu.Lock()
	wasClosed := l.closed
	l.closed = true
	l.mu.Unlock()
	if wasClosed {
		return nil
	}
	var errs []error
	if l.failure == nil && l.active != nil && !l.options.ReadOnly && l.durable < l.end.number {
		errs = append(errs, l.active.file.Sync())
	}
	for _, s := range l.segments {
		s.readers.Wait()
	}
	if l.spare != nil {
		errs = append(errs, l.spare.Close(), l.fs.Remove(path.Join(l.dir, spareName)))
		l.spare = nil
	}
	l.cache = cache{}
	return errors.Join(append(errs, l.closeFiles())...)
}

// closeFiles closes all files of the log, and releases the lock last.
func (l *Log) closeFiles() error {
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	if l.spare != nil {
		errs = append(errs, l.spare.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
