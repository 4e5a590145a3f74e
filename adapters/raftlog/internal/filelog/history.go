package filelog

// The entries that count, as they lie on the disk, for tools.

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// Extent says how far a log on the disk goes.
type Extent struct {
	First  uint64 // of the entries that are on the disk; 0 if there are none
	Last   uint64
	Commit uint64 // through which entries are known to be committed
	Mark   uint64 // through which the log is compacted
}

// History calls do with every entry that counts, in the order of their indexes: without those
// that later ones have replaced, and with those that are compacted as long as their files are
// there. An entry that is not known to be committed may be replaced yet. As [Scan] it changes
// nothing, takes no lock, and may be used beside a running peer; do's error ends it. If the
// log is damaged do has had what is before that. Of the records only Data stay valid after the
// call.
func History(fsys disk.FS, dir string, do func(r Record, committed bool) error) (Extent, error) {
	ended := false
	h := history{do: func(r Record, committed bool) error {
		err := do(r, committed)
		ended = err != nil
		return err
	}}
	err := Scan(fsys, dir, h.record)
	if ended {
		return h.extent, err
	}
	if rest := h.rest(); err == nil { // what is before a damage is told too
		err = rest
	}
	return h.extent, err
}

// rest tells what is left when there are no more records.
func (h *history) rest() error {
	if err := h.tell(); err != nil {
		return err
	}
	for _, r := range h.pending {
		if err := h.do(r, false); err != nil {
			return err
		}
	}
	return nil
}

type history struct {
	do      func(Record, bool) error
	extent  Extent
	told    Record   // the newest one that do has had
	pending []Record // one after the other, behind told
	number  uint64
}

func (h *history) record(r Record) error {
	if r.Number != h.number { // the commit index of a batch is told before its entries
		if err := h.tell(); err != nil {
			return err
		}
		h.number = r.Number
	}
	if r.HardState != nil {
		h.extent.Commit = max(h.extent.Commit, r.HardState.GetCommit())
	}
	switch r.Kind {
	case KindSegment, KindMark:
		h.extent.Mark = max(h.extent.Mark, r.Index)
		h.extent.Commit = max(h.extent.Commit, r.Index)
	case KindEntry:
		return h.entry(r)
	}
	return nil
}

func (h *history) entry(r Record) error {
	if r.Index <= h.told.Index {
		if r.Index == h.told.Index && r.Term != h.told.Term {
			return corrupt(r.File, r.Offset, "entry %d of term %d replaces a committed one of term %d", r.Index, r.Term, h.told.Term)
		}
		return nil // the same again
	}
	if h.extent.First == 0 {
		h.extent.First = r.Index
	}
	if len(h.pending) > 0 && r.Index <= h.extent.Last {
		if r.Index < h.pending[0].Index {
			return corrupt(r.File, r.Offset, "entry %d comes before the log's first one, %d", r.Index, h.pending[0].Index)
		}
		h.pending = h.pending[:r.Index-h.pending[0].Index]
	} else if h.extent.Last != 0 && r.Index != h.extent.Last+1 {
		return corrupt(r.File, r.Offset, "entry %d follows %d", r.Index, h.extent.Last)
	}
	r.Data = slices.Clone(r.Data)
	h.pending = append(h.pending, r)
	h.extent.Last = r.Index
	return nil
}

// tell tells what is committed by now.
func (h *history) tell() error {
	for len(h.pending) > 0 && h.pending[0].Index <= h.extent.Commit {
		if err := h.do(h.pending[0], true); err != nil {
			return err
		}
		h.told = h.pending[0]
		h.pending = h.pending[1:]
	}
	return nil
}
