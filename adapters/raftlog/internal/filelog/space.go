package filelog

// The space for the next segment, and a disk that has none.

import (
	"errors"
	"fmt"
	"math"
	"path"
	"syscall"

	"go.etcd.io/raft/v3/raftpb"
)

// The next segment is allocated when the active one is filled to three quarters. Without space for
// it, entries are written until the rest of the active segment is kept free: hard states, with the
// votes of this peer, and compaction marks need it. Callers should stop earlier to write what can
// be refused; see [Log.Room].
const (
	keptShare  = 64 // of a segment, for hard states and marks
	keptLeast  = 1 << 10
	spareShare = 8 // of a segment, for entries that should not be refused
	retryShare = 64
)

// kept is how many bytes of a segment of that size are only for hard states and marks.
func kept(limit int64) int64 { return min(max(limit/keptShare, keptLeast), limit/8) }

// makeRoom sees to it that a payload of that size fits the active segment, and that the next
// one has its space before this one is full.
func (l *Log) makeRoom(size int64, entries []*raftpb.Entry) error {
	limit, end := l.limit(l.active), l.at.end+headSize+size
	first := l.last + 1
	turn := end > limit
	if len(entries) > 0 {
		first = entries[0].GetIndex()
		turn = turn || first < l.active.first || len(l.active.offs) == 0 && first != l.active.first
		refused := end > limit-kept(limit)
		if end > limit/4*3 && l.spare == nil && (refused || l.noSpace == nil || l.at.end >= l.retryAt) {
			l.retryAt = l.at.end + limit/retryShare
			if err := l.reserve(0); l.err != nil {
				return err
			} else if err != nil && refused {
				return err
			}
		}
	}
	if !turn {
		return nil
	}
	h := header{place: place{first, l.active.seq + 1}, state: l.state, mark: l.mark}
	return l.create(h, size)
}

// Room is how many bytes of entries the log can take, if the disk had no space for the next segment
// when it was last tried, less an eighth of a segment: of those that a caller can refuse. It is
// math.MaxInt64 if there was space, or none was needed yet, and zero or less if nothing should be
// written that can be refused.
func (l *Log) Room() int64 {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.noSpace == nil || l.active == nil {
		return math.MaxInt64
	}
	limit := l.limit(l.active)
	return limit - limit/spareShare - l.at.end
}

// Reserve allocates the next segment, if it is not yet: a Reset after it finds its space. The
// error is as Append's.
func (l *Log) Reserve() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil || l.spare != nil {
		return err
	}
	return l.reserve(0)
}

// reserve allocates the file that is to be the next segment, with room for a payload of that
// size. The error wraps ErrNoSpace if the disk is full; nothing has changed then.
func (l *Log) reserve(size int64) error {
	l.noSpace = l.allocate(size)
	return l.noSpace
}

func (l *Log) allocate(size int64) error {
	name := path.Join(l.dir, spareName)
	want := max(l.o.SegmentSize, aligned(headSize+headerSize)+headSize+size)
	if l.spare == nil {
		f, err := l.fs.Create(name)
		if err != nil {
			return l.noRoom("making", name, err)
		}
		l.spare, l.room = f, 0
	}
	if want > l.room {
		if err := l.spare.Allocate(want); err != nil {
			err = l.noRoom("allocating", name, err)
			if l.err != nil {
				return err
			}
			// What there is of it goes back.
			f := l.spare
			l.spare = nil
			if e := errors.Join(f.Close(), l.fs.Remove(name)); e != nil {
				// Not ErrNoSpace, after which the log could go on.
				return l.die("removing", name, fmt.Errorf("%w; before that: %v", e, err))
			}
			return err
		}
		l.room = want
	}
	return nil
}

// noRoom tells a full disk from one that has failed.
func (l *Log) noRoom(doing, name string, err error) error {
	if full(err) {
		return fmt.Errorf("%w: %s %s: %w", ErrNoSpace, doing, name, err)
	}
	return l.die(doing, name, err)
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
