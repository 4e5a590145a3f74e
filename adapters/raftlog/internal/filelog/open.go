package filelog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

const (
	spareName = "next.tmp" // the name of the file that becomes the next segment
	lockName  = "LOCK"
	oldPrefix = "old-" // the prefix of the names of the directories to which Reset moves replaced segments
)

// Open opens the log in a directory. It creates the log if it does not exist, unless Options.ReadOnly
// is set. Open reads and verifies the whole log. It locks the log until the log is closed; if the log
// is already locked, the error wraps disk.ErrLocked. Open removes what a crash has left of records that
// were not durable, and makes all readable records durable. If the log is damaged, the error wraps
// [ErrCorrupt].
func Open(fsys disk.FS, dir string, o Options) (*Log, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSize
	}
	if o.CacheSize == 0 {
		o.CacheSize = defaultSize
	}
	if o.SegmentSize < 0 || o.SegmentSize > 2<<30 {
		return nil, invalid("a segment cannot have %d bytes", o.SegmentSize)
	}
	l := &Log{fs: fsys, dir: dir, options: o, cache: cache{limit: o.CacheSize}}
	if err := l.load(); err != nil {
		if !errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("filelog: opening %s: %w", dir, err)
		}
		return nil, errors.Join(err, l.closeFiles())
	}
	return l, nil
}

// load reads the segments of the log, and prepares the log for writing unless it is read-only.
func (l *Log) load() error {
	if !l.options.ReadOnly {
		if err := l.prepareDirectory(); err != nil {
			return err
		}
	}
	segments, replaced, err := openSegments(l.fs, l.dir, !l.options.ReadOnly)
	l.segments = segments
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		if l.options.ReadOnly {
			return fs.ErrNotExist
		}
		return l.startSegment(segmentHeader{id: segmentID{first: 1, number: 1}}, 0)
	}
	contents, err := readContents(segments)
	if err != nil {
		return err
	}
	if err := l.mergeContents(contents); err != nil {
		return err
	}
	if l.options.ReadOnly {
		return nil
	}
	return l.repair(replaced)
}

// prepareDirectory creates and locks the directory, and removes the spare file that an earlier process
// has left.
func (l *Log) prepareDirectory() error {
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	for d := l.dir; d != "."; {
		d = path.Dir(d)
		if err := l.fs.SyncDir(d); err != nil {
			return err
		}
	}
	lock, err := l.fs.Lock(path.Join(l.dir, lockName))
	if err != nil {
		return err
	}
	l.lock = lock
	err = l.fs.Remove(path.Join(l.dir, spareName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openSegments opens the segments of a log in order. It also returns the names of the segments that a
// Reset has replaced but not moved yet. Even with an error it may return segments, which the caller
// must close.
func openSegments(fsys disk.FS, dir string, write bool) (segments []*segment, replaced []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, nil, err
	}
	open := fsys.OpenRead
	if write {
		open = fsys.Open
	}
	for _, name := range names {
		if !strings.HasSuffix(name, Suffix) {
			continue
		}
		file := path.Join(dir, name)
		id, ok := parseFileName(name)
		if !ok || id.first == 0 || id.number == 0 {
			return segments, nil, corrupt(file, 0, "this is not the name of a segment")
		}
		f, err := open(file)
		if err != nil {
			return segments, nil, err
		}
		segments = append(segments, &segment{id: id, name: file, file: f})
	}
	slices.SortFunc(segments, func(a, b *segment) int { return cmp.Compare(a.id.number, b.id.number) })
	first := 0
	for i, s := range segments {
		header, err := s.readHeader()
		if err != nil {
			return segments, nil, err
		}
		if header.reset {
			first = i
		}
	}
	for _, s := range segments[:first] {
		replaced = append(replaced, path.Base(s.name))
		if err := s.file.Close(); err != nil {
			return segments[first:], nil, err
		}
	}
	segments = segments[first:]
	for i, s := range segments[min(1, len(segments)):] {
		if want := segments[i].id.number + 1; s.id.number != want {
			return segments, nil, corrupt(s.name, 0, "the segment with number %08x, before this one, is missing", want)
		}
	}
	return segments, replaced, nil
}

func (s *segment) readHeader() (segmentHeader, error) {
	r := &segmentReader{id: s.id, name: s.name, file: s.file, size: headSize + headerSize}
	first, err := r.readRecord()
	if err != nil {
		return segmentHeader{}, err
	}
	return first.header, nil
}

// segmentContent is what Open has read from one segment.
type segmentContent struct {
	headerNumber uint64 // the number of the header record
	chain        uint32 // the checksum of the previous segment, according to the header
	end          position
	offsets      []uint32 // the offsets in the segment of those entries that no later batch of the segment replaces
	last         uint64   // the index of the last entry; one less than the first index if there is no entry
	terms        termRuns
	state        hardState // the last hard state, with the maximum of all commit indexes in the segment
	mark         mark
}

// readContents reads and verifies all segments, several at the same time.
func readContents(segments []*segment) ([]*segmentContent, error) {
	contents := make([]*segmentContent, len(segments))
	errs := make([]error, len(segments))
	next := make(chan int, len(segments))
	for i := range segments {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range min(len(segments), runtime.GOMAXPROCS(0), 8) {
		workers.Go(func() {
			for i := range next {
				contents[i], errs[i] = segments[i].readContent()
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return contents, nil
}

func (s *segment) readContent() (*segmentContent, error) {
	r, err := s.newReader()
	if err != nil {
		return nil, err
	}
	c := &segmentContent{last: s.id.first - 1}
	for {
		next, err := r.readRecord()
		if err != nil {
			return nil, err
		}
		if next == nil {
			c.end = r.at
			return c, nil
		}
		switch next.head.kind {
		case typeHeader:
			c.headerNumber, c.chain = next.head.number, next.header.chain
			c.state, c.mark = next.header.state, next.header.mark
		case typeBatch:
			if err := c.addBatch(s.id.first, next); err != nil {
				return nil, corrupt(s.name, next.offset, "%v", err)
			}
		case typeMark:
			if next.mark.index > c.mark.index {
				c.mark = next.mark
			}
			c.state.raiseCommit(c.mark.index)
		}
	}
}

// addBatch adds a batch record to the content of the segment whose first index is first.
func (c *segmentContent) addBatch(first uint64, r *record) error {
	b := &r.batch
	if b.count > 0 {
		if b.first < first || b.first > c.last+1 {
			return fmt.Errorf("a batch begins at index %d and follows entries %d to %d", b.first, first, c.last)
		}
		c.offsets = c.offsets[:b.first-first]
		c.terms = c.terms.truncate(b.first)
		c.last = b.first + uint64(b.count) - 1
	}
	if b.state.exists {
		b.state.raiseCommit(c.state.commit)
		c.state = b.state
	}
	start := r.entriesOffset()
	if start+int64(len(b.entries)) > math.MaxUint32 {
		return errors.New("batch exceeds the maximum size of a segment")
	}
	return b.visitEntries(func(index uint64, offset int, raw []byte) {
		c.offsets = append(c.offsets, uint32(start)+uint32(offset))
		c.terms = c.terms.add(index, entryTerm(raw))
	})
}

// continuesWith reports whether the next segment continues the segment whose records end at p. number and
// chain are from the header of the next segment.
func (p position) continuesWith(number uint64, chain uint32) bool {
	return number == p.number+1 && chain == p.chain
}

// mergeContents derives the state of the log from the contents of its segments.
func (l *Log) mergeContents(contents []*segmentContent) error {
	l.last = l.segments[0].id.first - 1
	for i, c := range contents {
		s := l.segments[i]
		s.end = c.end.end
		if i > 0 && !contents[i-1].end.continuesWith(c.headerNumber, c.chain) {
			before := l.segments[i-1]
			return corrupt(before.name, before.end, "record %d is not readable, or %s does not continue this segment",
				contents[i-1].end.number+1, s.name)
		}
		if len(c.offsets) > 0 {
			if s.id.first > l.last+1 {
				return corrupt(s.name, 0, "entries %d to %d are missing", l.last+1, s.id.first-1)
			}
			l.truncateIndex(s.id.first)
			s.offsets, s.count = slices.Clip(c.offsets), len(c.offsets)
			l.live = append(l.live, s)
			l.last = c.last
			for _, r := range c.terms {
				l.terms = l.terms.add(r.first, r.term)
			}
		}
		if c.mark.index > l.mark.index {
			l.mark = c.mark
		}
		if c.state.exists {
			c.state.raiseCommit(l.state.commit)
			l.state = c.state
		}
	}
	l.active, l.end = l.segments[len(l.segments)-1], contents[len(contents)-1].end
	if err := l.checkConsistency(); err != nil {
		return err
	}
	l.dropCompacted()
	return nil
}

// checkConsistency returns an error that wraps ErrCorrupt if entries are missing, or if the entries
// contradict the compaction mark or the commit index.
func (l *Log) checkConsistency() error {
	first := l.last + 1
	if len(l.live) > 0 {
		first = l.live[0].id.first
	}
	name, end := l.active.name, l.end.end
	switch {
	case first > l.mark.index+1:
		return corrupt(l.segments[0].name, 0, "entries %d to %d, before this segment, are missing: the log is compacted through %d",
			l.mark.index+1, first-1, l.mark.index)
	case l.last < l.mark.index:
		return corrupt(name, end, "the log ends at %d and is compacted through %d", l.last, l.mark.index)
	case l.state.commit > l.last:
		return corrupt(name, end, "the log ends at %d and is committed through %d", l.last, l.state.commit)
	case l.mark.index >= first && l.terms.termAt(l.mark.index) != l.mark.term:
		return corrupt(name, end, "the compaction mark has term %d, the entry %d has term %d",
			l.mark.term, l.mark.index, l.terms.termAt(l.mark.index))
	}
	return nil
}

// repair prepares the log for appending, and makes all readable records durable. They may not be
// durable, because an earlier process was killed before it synced them.
func (l *Log) repair(replaced []string) error {
	s := l.active
	r, err := s.newReader()
	if err != nil {
		return err
	}
	r.at = l.end
	dirty, err := r.findTail()
	if err != nil {
		return err
	}
	zeros := make([]byte, min(dirty-s.end, readSize))
	for offset := s.end; offset < dirty; offset += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), dirty-offset)], offset); err != nil {
			return err
		}
	}
	s.size = r.size
	if s.size < l.options.SegmentSize {
		switch err := s.file.Allocate(l.options.SegmentSize); {
		case err == nil:
			s.size = l.options.SegmentSize
		case !disk.IsFull(err): // a full disk is no error here: the active segment then has no free space
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.durable = l.end.number
	return l.moveAside(l.segments[0].id, replaced)
}
