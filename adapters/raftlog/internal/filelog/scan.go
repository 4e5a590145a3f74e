package filelog

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// RecordKind is the kind of the element that a Record describes.
type RecordKind byte

// These are the kinds of records that Scan reports.
const (
	// KindSegment is the beginning of a segment, with the log's hard state and compaction mark at that
	// time.
	KindSegment RecordKind = iota
	KindEntry
	KindHardState
	// KindMark is a compaction of the log: Index is the last compacted entry, which has the term Term.
	KindMark
)

// Record is one element of a log on disk: a segment, an entry, a hard state or a compaction mark.
type Record struct {
	Kind   RecordKind
	File   string
	Offset int64
	End    int64 // the offset in the file after the record that contains this element
	// Number is the number of the record on disk that contains the element. All elements of a batch, which are
	// its hard state and its entries, have the same number.
	Number    uint64
	Index     uint64            // the index of an entry or a compaction mark
	Term      uint64            // the term of an entry or a compaction mark
	Type      raftpb.EntryType  // the type of an entry
	Size      int               // the size of the data of an entry, in bytes
	Data      []byte            // the data of an entry; valid during the call of visit
	HardState *raftpb.HardState // the hard state; set for a hard state, and for a segment that contains one
	Reset     bool              // whether the segment begins a new log
}

// Scan calls visit with all elements of a log, in the order in which they were written, including
// entries that were replaced by later ones. It changes nothing and takes no lock. If another process is
// writing the log, Scan ends at the last readable record, as after a crash. If the log is damaged, Scan
// visits everything before the damage and returns an error that wraps ErrCorrupt. If visit returns an
// error, Scan returns that error.
func Scan(fsys disk.FS, dir string, visit func(Record) error) (err error) {
	segments, _, err := openSegments(fsys, dir, false)
	defer func() {
		for _, s := range segments {
			if e := s.file.Close(); err == nil {
				err = e
			}
		}
	}()
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		return fmt.Errorf("filelog: no log in %s: %w", dir, fs.ErrNotExist)
	}
	var last *segmentReader
	for _, s := range segments {
		r, err := s.newReader()
		if err != nil {
			return err
		}
		if err := scanSegment(r, last, visit); err != nil {
			return err
		}
		last = r
	}
	return last.verifyTail()
}

// scanSegment visits the elements of a segment. If previous is not nil, the segment must continue the
// previous segment.
func scanSegment(r, previous *segmentReader, visit func(Record) error) error {
	for {
		next, err := r.readRecord()
		if err != nil || next == nil {
			return err
		}
		if next.head.kind == typeHeader && previous != nil && !previous.at.continuesWith(next.head.number, next.header.chain) {
			return corrupt(r.name, next.offset, "the segment does not continue the previous one, whose last readable record is %d", previous.at.number)
		}
		if err := visitElements(r.name, next, r.at.end, visit); err != nil {
			return err
		}
	}
}

// visitElements calls visit with the elements of a record that ends at the offset end.
func visitElements(name string, r *record, end int64, visit func(Record) error) error {
	element := Record{File: path.Base(name), Offset: r.offset, End: end, Number: r.head.number}
	switch r.head.kind {
	case typeHeader:
		element.Kind, element.Index, element.Term = KindSegment, r.header.mark.index, r.header.mark.term
		element.HardState, element.Reset = r.header.state.message(), r.header.reset
		return visit(element)
	case typeMark:
		element.Kind, element.Index, element.Term = KindMark, r.mark.index, r.mark.term
		return visit(element)
	}
	if r.batch.state.exists {
		state := element
		state.Kind, state.HardState = KindHardState, r.batch.state.message()
		if err := visit(state); err != nil {
			return err
		}
	}
	var stop error
	element.Kind = KindEntry
	start := r.entriesOffset()
	err := r.batch.visitEntries(func(index uint64, offset int, raw []byte) {
		if stop != nil {
			return
		}
		element.Offset, element.Index = start+int64(offset), index
		element.Term, element.Type = entryTerm(raw), entryType(raw)
		element.Data = raw[entrySize:]
		element.Size = len(element.Data)
		stop = visit(element)
	})
	if err != nil {
		return corrupt(name, start, "%v", err)
	}
	return stop
}

// Extent describes which entries a log on disk contains.
type Extent struct {
	First  uint64 // the index of the first entry on disk; 0 if there are no entries
	Last   uint64 // the index of the last entry on disk
	Commit uint64 // the index up to which entries are known to be committed
	Mark   uint64 // the index up to which the log is compacted
}

// History calls visit with every valid entry, in the order of the indexes. It omits entries that were
// replaced by later ones, and includes compacted entries whose files still exist. An entry that is not
// known to be committed may be replaced later. Like [Scan], History changes nothing, takes no lock, and
// may be called while a peer is running. If the log is damaged, History visits the entries before the
// damage and returns an error that wraps ErrCorrupt. If visit returns an error, History returns that
// error. After visit has returned, only the field Data of its Record remains valid.
func History(fsys disk.FS, dir string, visit func(r Record, committed bool) error) (Extent, error) {
	h := history{visit: visit}
	err := Scan(fsys, dir, h.addRecord)
	if h.stopped {
		return h.extent, err
	}
	if rest := h.reportAll(); err == nil { // also report the entries before damage or the end
		err = rest
	}
	return h.extent, err
}

// history selects the valid entries among the elements of a log, and passes them to visit in the order of
// their indexes.
type history struct {
	visit   func(Record, bool) error
	stopped bool // whether visit has returned an error
	extent  Extent
	newest  Record   // the last committed entry that was passed to visit
	pending []Record // the entries after newest, which later entries may still replace
	batch   uint64   // the number of the current batch record
}

func (h *history) addRecord(r Record) error {
	if r.Number != h.batch {
		// Report the committed entries only after the whole batch, because the commit index of a batch
		// can refer to entries of the same batch.
		if err := h.reportCommitted(); err != nil {
			return err
		}
		h.batch = r.Number
	}
	if r.HardState != nil {
		h.extent.Commit = max(h.extent.Commit, r.HardState.GetCommit())
	}
	switch r.Kind {
	case KindSegment, KindMark:
		h.extent.Mark = max(h.extent.Mark, r.Index)
		h.extent.Commit = max(h.extent.Commit, r.Index)
	case KindEntry:
		return h.addEntry(r)
	}
	return nil
}

func (h *history) addEntry(r Record) error {
	if r.Index <= h.newest.Index {
		if r.Index == h.newest.Index && r.Term != h.newest.Term {
			return corrupt(r.File, r.Offset, "entry %d of term %d replaces a committed entry of term %d", r.Index, r.Term, h.newest.Term)
		}
		return nil // the committed entry was appended again
	}
	if h.extent.First == 0 {
		h.extent.First = r.Index
	}
	if len(h.pending) > 0 && r.Index <= h.extent.Last {
		first := h.pending[0].Index
		if r.Index < first {
			return corrupt(r.File, r.Offset, "entry %d comes before the log's first one, %d", r.Index, first)
		}
		h.pending = h.pending[:r.Index-first]
	} else if h.extent.Last != 0 && r.Index != h.extent.Last+1 {
		return corrupt(r.File, r.Offset, "entry %d follows entry %d", r.Index, h.extent.Last)
	}
	r.Data = slices.Clone(r.Data)
	h.pending = append(h.pending, r)
	h.extent.Last = r.Index
	return nil
}

// reportCommitted passes the pending entries that are committed to visit.
func (h *history) reportCommitted() error {
	for len(h.pending) > 0 && h.pending[0].Index <= h.extent.Commit {
		h.newest, h.pending = h.pending[0], h.pending[1:]
		if err := h.report(h.newest, true); err != nil {
			return err
		}
	}
	return nil
}

// reportAll passes the remaining entries to visit, after the last record.
func (h *history) reportAll() error {
	if err := h.reportCommitted(); err != nil {
		return err
	}
	for _, r := range h.pending {
		if err := h.report(r, false); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) report(r Record, committed bool) error {
	err := h.visit(r, committed)
	h.stopped = err != nil
	return err
}
