package filelog

// Opening: every segment is read and verified, several at a time, and put together.

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
	spareName = "next.tmp" // the next segment, before it has its name
	lockName  = "LOCK"
	oldPrefix = "old-" // directories of what a Reset has replaced
)

// Open opens the log in a directory, and makes an empty one if there is none (unless it is to
// be read only). It reads all of it. The log is locked for others until it is closed
// (disk.ErrLocked). What a crash has left of unsynced records is wiped, what is readable is
// made durable; [ErrCorrupt] if the log is damaged.
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
	l := &Log{fs: fsys, dir: dir, o: o, cache: cache{limit: o.CacheSize}}
	if err := l.open(); err != nil {
		if !errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("filelog: opening %s: %w", dir, err)
		}
		return nil, errors.Join(err, l.abandon())
	}
	return l, nil
}

// abandon closes what a failed Open has opened.
func (l *Log) abandon() error {
	var errs []error
	for _, s := range l.segs {
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

func (l *Log) open() error {
	if !l.o.ReadOnly {
		if err := l.prepare(); err != nil {
			return err
		}
	}
	segs, old, err := list(l.fs, l.dir, !l.o.ReadOnly)
	l.segs = segs
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		if l.o.ReadOnly {
			return fs.ErrNotExist
		}
		return l.create(header{place: place{first: 1, seq: 1}}, 0)
	}
	found, err := scanAll(segs)
	if err != nil {
		return err
	}
	if err := l.merge(found); err != nil {
		return err
	}
	if l.o.ReadOnly {
		return nil
	}
	return l.recover(old)
}

// prepare makes the directory and locks it, and removes what never became a segment.
func (l *Log) prepare() error {
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

// list opens the segments of a log, in order, and returns the names of those that a Reset has
// replaced and not moved aside yet.
func list(fsys disk.FS, dir string, write bool) (segs []*segment, old []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		p, ok := parseName(name)
		if !ok || p.first == 0 || p.seq == 0 {
			return segs, nil, corrupt(path.Join(dir, name), 0, "no segment has such a name")
		}
		f, err := openSegment(fsys, path.Join(dir, name), write)
		if err != nil {
			return segs, nil, err
		}
		segs = append(segs, &segment{place: p, name: name, file: f})
	}
	slices.SortFunc(segs, func(a, b *segment) int { return cmp.Compare(a.seq, b.seq) })
	begin := 0
	for i, s := range segs {
		reset, err := s.resets(path.Join(dir, s.name))
		if err != nil {
			return segs, nil, err
		}
		if reset {
			begin = i
		}
	}
	for _, s := range segs[:begin] {
		old = append(old, s.name)
		if err := s.file.Close(); err != nil {
			return segs[begin:], nil, err
		}
	}
	segs = segs[begin:]
	for i, s := range segs {
		s.name = path.Join(dir, s.name)
		if i > 0 && s.seq != segs[i-1].seq+1 {
			return segs, nil, corrupt(s.name, 0, "the segment with number %08x, before this one, is missing", segs[i-1].seq+1)
		}
	}
	return segs, old, nil
}

func openSegment(fsys disk.FS, name string, write bool) (disk.File, error) {
	if write {
		return fsys.Open(name)
	}
	return fsys.OpenRead(name)
}

// resets reads only the header, and tells whether the log begins anew with this segment.
func (s *segment) resets(name string) (bool, error) {
	w := &window{f: s.file, size: headSize + headerSize}
	var reset bool
	_, err := s.walk(name, w, func(off int64, _ head, payload []byte) error {
		h, err := readHeader(payload)
		if err != nil {
			return corrupt(name, off, "%v", err)
		}
		reset = h.reset
		return nil
	})
	return reset, err
}

// scanAll reads segments, several at a time.
func scanAll(segs []*segment) ([]*scanned, error) {
	found := make([]*scanned, len(segs))
	errs := make([]error, len(segs))
	next := make(chan int, len(segs))
	for i := range segs {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range min(len(segs), runtime.GOMAXPROCS(0), 8) {
		workers.Go(func() {
			for i := range next {
				found[i], errs[i] = segs[i].scan(segs[i].name, segs[i].file)
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// follows tells whether b's segment was begun where a ends.
func follows(a, b *scanned) bool {
	return b.number == a.walked.number+1 && b.header.chain == a.chain
}

// merge puts together what the segments have.
func (l *Log) merge(found []*scanned) error {
	l.last = l.segs[0].first - 1
	for i, f := range found {
		s := l.segs[i]
		s.end = f.end
		if i > 0 && !follows(found[i-1], f) {
			before := l.segs[i-1]
			return corrupt(before.name, before.end, "record %d is not readable, or the segment is not the one that %s goes on from",
				found[i-1].walked.number+1, s.name)
		}
		if len(f.offs) > 0 {
			if s.first > l.last+1 {
				return corrupt(s.name, 0, "entries %d to %d are missing", l.last+1, s.first-1)
			}
			l.cut(s.first)
			s.offs, s.n = slices.Clip(f.offs), len(f.offs)
			l.live = append(l.live, s)
			l.last = f.last
			for _, r := range f.runs {
				l.runs = l.runs.add(r.first, r.term)
			}
		}
		if f.mark.index > l.mark.index {
			l.mark = f.mark
		}
		if f.state.ok {
			f.state.raise(l.state.commit)
			l.state = f.state
		}
	}
	end := found[len(found)-1]
	at := end.end
	l.active, l.at = l.segs[len(l.segs)-1], end.walked
	first := l.last + 1
	if len(l.live) > 0 {
		first = l.live[0].first
	}
	switch {
	case first > l.mark.index+1:
		return corrupt(l.segs[0].name, 0, "entries %d to %d, before it, are missing: compacted are those through %d only",
			l.mark.index+1, first-1, l.mark.index)
	case l.last < l.mark.index:
		return corrupt(l.active.name, at, "the log ends at %d and is compacted through %d", l.last, l.mark.index)
	case l.state.commit > l.last:
		return corrupt(l.active.name, at, "the log ends at %d and is committed through %d", l.last, l.state.commit)
	case l.mark.index >= first && l.runs.term(l.mark.index) != l.mark.term:
		return corrupt(l.active.name, at, "the compaction mark has term %d, the entry %d has term %d",
			l.mark.term, l.mark.index, l.runs.term(l.mark.index))
	}
	l.compacted()
	return nil
}

// recover makes the log such that it can be appended to, and durable as it was read.
func (l *Log) recover(old []string) error {
	s := l.active
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	dirty, err := s.tail(s.name, &window{f: s.file, size: size}, l.at)
	if err != nil {
		return err
	}
	zeros := make([]byte, min(dirty-s.end, windowSize))
	for off := s.end; off < dirty; off += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), dirty-off)], off); err != nil {
			return err
		}
	}
	s.size = size
	if size < l.o.SegmentSize {
		switch err := s.file.Allocate(l.o.SegmentSize); {
		case err == nil:
			s.size = l.o.SegmentSize
		case !full(err): // without space the segment is full
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.synced = l.at.number
	return l.moveAside(l.segs[0].place, old)
}

// cut forgets the entries from index on; l.mu is held.
func (l *Log) cut(index uint64) {
	if index > l.last {
		return
	}
	l.gen++
	l.runs = l.runs.cut(index)
	l.cache.cut(index)
	for len(l.live) > 0 {
		s := l.live[len(l.live)-1]
		if s.first < index {
			s.offs = s.offs[:min(uint64(len(s.offs)), index-s.first)]
			s.n = len(s.offs)
			break
		}
		s.offs, s.n = nil, 0
		l.live = l.live[:len(l.live)-1]
	}
	l.last = index - 1
}

// compacted forgets what the mark says is gone; l.mu is held.
func (l *Log) compacted() {
	l.state.raise(l.mark.index)
	for len(l.live) > 0 && l.live[0] != l.active && l.live[0].last() <= l.mark.index {
		l.live[0].offs = nil
		l.live = l.live[1:]
	}
	if len(l.live) == 0 {
		l.runs = nil
	} else {
		l.runs = l.runs.drop(l.mark.index + 1)
	}
	l.cache.drop(l.mark.index)
}

// limit is how far a segment may be written: as far as its space is allocated.
func (l *Log) limit(s *segment) int64 { return min(s.size, math.MaxUint32) }
