package filelog

import (
	"errors"
	"fmt"
	"math"
	"path"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// The log allocates the next segment when the active one is filled to three quarters. If the disk is
// full, the log accepts entries until they reach the reserved part of the active segment. That part is
// for compaction marks and for hard states, which contain the votes of this peer. Callers should reject
// entries earlier, when [Log.FreeSpace] is not positive.
const (
	reservedShare = 64 // 1/64 of a segment is reserved for hard states and compaction marks
	reservedMin   = 1 << 10
	requiredShare = 8 // 1/8 of a segment is for entries that callers should not reject, such as those of elections
	retryShare    = 64
)

// reservedSize returns the number of bytes that a segment with space for limit bytes reserves for hard
// states and compaction marks.
func reservedSize(limit int64) int64 { return min(max(limit/reservedShare, reservedMin), limit/8) }

// writeLimit returns the offset up to which the log may write a segment: the end of the allocated space, or
// less, because offsets of entries are stored in 32 bits.
func (s *segment) writeLimit() int64 { return min(s.size, math.MaxUint32) }

// ensureSpace makes room for a record with a payload of the given size: it starts the next segment if
// the active one has no room, and allocates the next segment before the active one is full.
func (l *Log) ensureSpace(size int64, entries []*raftpb.Entry) error {
	limit, end := l.active.writeLimit(), l.end.end+headSize+size
	first := l.last + 1
	full := end > limit
	if len(entries) > 0 {
		first = entries[0].GetIndex()
		full = full || first < l.active.id.first || len(l.active.offsets) == 0 && first != l.active.id.first
		refused := end > limit-reservedSize(limit)
		if end > limit/4*3 && l.spare == nil && (refused || l.noSpace == nil || l.end.end >= l.retryAt) {
			l.retryAt = l.end.end + limit/retryShare
			if err := l.allocateSpare(0); l.failure != nil {
				return err
			} else if err != nil && refused {
				return err
			}
		}
	}
	if !full {
		return nil
	}
	id := segmentID{first, l.active.id.number + 1}
	return l.startSegment(segmentHeader{id: id, state: l.state, mark: l.mark}, size)
}

// FreeSpace returns the number of bytes of entries that the log can accept without the next segment.
// The number excludes an eighth of a segment, which is for entries that callers should not reject. It is
// math.MaxInt64 unless the last attempt to allocate the next segment has failed because the disk is
// full. If the result is not positive, the caller should reject entries.
func (l *Log) FreeSpace() int64 {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if l.noSpace == nil || l.active == nil {
		return math.MaxInt64
	}
	limit := l.active.writeLimit()
	return limit - limit/requiredShare - l.end.end
}

// Reserve allocates the next segment, unless the log has allocated it already, so that the next Reset
// does not need space. The errors are those of Append.
func (l *Log) Reserve() error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.checkWritable(); err != nil || l.spare != nil {
		return err
	}
	return l.allocateSpare(0)
}

// allocateSpare allocates the next segment, with space for a payload of the given size. If the disk is
// full, the error wraps ErrNoSpace and nothing has changed.
func (l *Log) allocateSpare(size int64) error {
	l.noSpace = l.tryAllocateSpare(size)
	return l.noSpace
}

func (l *Log) tryAllocateSpare(size int64) error {
	name := path.Join(l.dir, spareName)
	want := max(l.options.SegmentSize, alignUp(headSize+headerSize)+headSize+size)
	if l.spare == nil {
		f, err := l.fs.Create(name)
		if err != nil {
			return l.failUnlessFull("making", name, err)
		}
		l.spare, l.spareSize = f, 0
	}
	if want <= l.spareSize {
		return nil
	}
	err := l.spare.Allocate(want)
	if err == nil {
		l.spareSize = want
		return nil
	}
	if err = l.failUnlessFull("allocating", name, err); l.failure != nil {
		return err
	}
	// The disk is full: free what was allocated for the spare segment.
	f := l.spare
	l.spare = nil
	if e := errors.Join(f.Close(), l.fs.Remove(name)); e != nil {
		// This error must not wrap ErrNoSpace, because the log accepts writes after ErrNoSpace.
		return l.failPermanently("removing", name, fmt.Errorf("%w; before that: %v", e, err))
	}
	return err
}

// failUnlessFull returns an error that wraps ErrNoSpace if the disk is full. After any other error of
// the disk, it makes the log fail permanently.
func (l *Log) failUnlessFull(operation, name string, err error) error {
	if disk.IsFull(err) {
		return fmt.Errorf("%w: %s %s: %w", ErrNoSpace, operation, name, err)
	}
	return l.failPermanently(operation, name, err)
}

// startSegment seals the active segment and makes the spare file the active segment, with space for a
// payload of the given size. Both segments are durable when startSegment returns.
func (l *Log) startSegment(h segmentHeader, size int64) error {
	if err := l.allocateSpare(size); err != nil {
		return err
	}
	if err := l.sealActive(); err != nil {
		return err
	}
	h.chain = l.end.chain
	next, end, err := l.renameSpare(h)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active, l.end, l.durable = next, end, end.number
	l.segments = append(l.segments, next)
	return nil
}

// sealActive makes the active segment durable and frees the allocated space that the segment does not
// use.
func (l *Log) sealActive() error {
	s := l.active
	if s == nil {
		return nil
	}
	if s.size > l.end.end {
		if err := s.file.Truncate(l.end.end); err != nil {
			return l.failPermanently("sealing", s.name, err)
		}
		s.size = l.end.end
	}
	if err := s.file.Sync(); err != nil {
		return l.failPermanently("syncing", s.name, err)
	}
	l.durable = l.end.number
	return nil
}

// renameSpare writes the header h to the spare file and then renames the file to the name of the segment that
// h describes. It returns the segment, and the position after the header. The header is durable before the
// rename, so that there is never a segment without a header.
func (l *Log) renameSpare(h segmentHeader) (*segment, position, error) {
	temporary, name := path.Join(l.dir, spareName), path.Join(l.dir, h.id.fileName())
	number := l.end.number + 1
	l.startRecord(headerSize)
	l.buffer = h.appendTo(l.buffer)
	crc := h.id.sealRecord(l.buffer, 0, recordHead{kind: typeHeader, number: number, durable: number - 1}, 0)
	end := position{}.advance(len(l.buffer), number, crc)
	f := l.spare
	l.spare = nil
	if _, err := f.WriteAt(l.buffer, 0); err != nil {
		return nil, end, l.failPermanently("writing to", temporary, errors.Join(err, f.Close()))
	}
	if err := f.Sync(); err != nil {
		return nil, end, l.failPermanently("syncing", temporary, errors.Join(err, f.Close()))
	}
	if err := f.Close(); err != nil { // because some systems cannot rename open files
		return nil, end, l.failPermanently("closing", temporary, err)
	}
	if err := l.fs.Rename(temporary, name); err != nil {
		return nil, end, l.failPermanently("naming", name, err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return nil, end, l.failPermanently("syncing", l.dir, err)
	}
	file, err := l.fs.Open(name)
	if err != nil {
		return nil, end, l.failPermanently("opening", name, err)
	}
	return &segment{id: h.id, name: name, file: file, size: l.spareSize, end: end.end}, end, nil
}
