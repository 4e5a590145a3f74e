package filelog

// Listing a log as it lies on the disk, for tools.

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// RecordKind is what a Record tells of.
type RecordKind byte

// The kinds of records.
const (
	KindSegment RecordKind = iota // a segment begins; with the hard state and the mark of then
	KindEntry
	KindHardState
	KindMark // the log is compacted through Index, which has Term
)

// Record is one piece of a log on the disk.
type Record struct {
	Kind   RecordKind
	File   string
	Offset int64
	// Number counts what was written at once: a batch's hard state and entries have the same.
	Number    uint64
	Index     uint64 // of the entry, or the mark's
	Term      uint64
	Type      raftpb.EntryType  // of an entry
	Size      int               // of an entry's data, in bytes
	Data      []byte            // of an entry; valid during the call
	HardState *raftpb.HardState // of a hard state, or of a segment if it has one
	Reset     bool              // of a segment: the log begins anew with it
}

// Scan calls do with everything that is in a log, in the order in which it was written:
// entries that later ones have replaced too. It changes nothing and takes no lock; the log may
// be in use by another process, and then ends, as after a crash, where nothing more is
// readable. ErrCorrupt, after all that is before it, if the log is damaged, also in the last
// segment; do's error ends it.
func Scan(fsys disk.FS, dir string, do func(Record) error) (err error) {
	segs, _, err := list(fsys, dir, false)
	defer func() {
		for _, s := range segs {
			if e := s.file.Close(); err == nil {
				err = e
			}
		}
	}()
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		return fmt.Errorf("filelog: no log in %s: %w", dir, fs.ErrNotExist)
	}
	var before walked
	for i, s := range segs {
		at, err := s.tell(i > 0, before, do)
		if err != nil {
			return err
		}
		before = at
	}
	return segs[len(segs)-1].whole(before)
}

// whole tells whether what follows the records of the last segment is only what a crash may
// leave there. Beside a process that writes, records may be there by now that were not when
// the segment was read; so it is read again. What was durable when a later record was written
// is readable then, unless it is damaged.
func (s *segment) whole(at walked) error {
	for { // while it grows
		size, err := s.file.Size()
		if err != nil {
			return err
		}
		_, damage := s.tail(s.name, &window{f: s.file, size: size}, at)
		if damage == nil {
			return nil
		}
		again, err := s.walk(s.name, &window{f: s.file, size: size}, func(int64, head, []byte) error { return nil })
		if err != nil || again.end == at.end {
			return errors.Join(damage, err)
		}
		at = again
	}
}

// tell calls do with what is in a segment, which must go on from before if it is chained.
func (s *segment) tell(chained bool, before walked, do func(Record) error) (walked, error) {
	size, err := s.file.Size()
	if err != nil {
		return walked{}, err
	}
	return s.walk(s.name, &window{f: s.file, size: size}, func(off int64, h head, payload []byte) error {
		r := Record{File: path.Base(s.name), Offset: off, Number: h.number}
		switch h.kind {
		case typeHeader:
			head, err := readHeader(payload)
			if err != nil {
				return corrupt(s.name, off, "%v", err)
			}
			if chained && (h.number != before.number+1 || head.chain != before.chain) {
				return corrupt(s.name, off, "the segment does not go on from where record %d, the last readable one before it, is", before.number)
			}
			r.Kind, r.Index, r.Term = KindSegment, head.mark.index, head.mark.term
			r.HardState, r.Reset = head.state.message(), head.reset
			return do(r)
		case typeMark:
			if len(payload) != markSize {
				return corrupt(s.name, off, "compaction mark of %d bytes", len(payload))
			}
			m := readMark(payload)
			r.Kind, r.Index, r.Term = KindMark, m.index, m.term
			return do(r)
		case typeBatch:
			return s.tellBatch(r, payload, do)
		}
		return corrupt(s.name, off, "record of type %d, which this program does not know", h.kind)
	})
}

func (s *segment) tellBatch(r Record, payload []byte, do func(Record) error) error {
	b, err := readBatch(payload)
	if err != nil {
		return corrupt(s.name, r.Offset, "%v", err)
	}
	if b.state.ok {
		hs := r
		hs.Kind, hs.HardState = KindHardState, b.state.message()
		if err := do(hs); err != nil {
			return err
		}
	}
	begin := r.Offset + headSize + int64(len(payload)-len(b.rest))
	var stop error
	index := b.first
	err = b.visit(func(at int, raw []byte) {
		if stop != nil {
			return
		}
		r.Kind, r.Offset, r.Index = KindEntry, begin+int64(at), index
		r.Term, r.Type = rawTerm(raw), raftpb.EntryType(raw[16])
		r.Data = raw[entrySize:]
		r.Size = len(r.Data)
		stop = do(r)
		index++
	})
	if err != nil {
		return corrupt(s.name, begin, "%v", err)
	}
	return stop
}
