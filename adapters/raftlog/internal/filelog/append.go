package filelog

// Appending: one write and one sync a batch.

import (
	"errors"
	"fmt"
	"math"
	"path"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// Batch is what is appended at once: after a crash all of it is there, or nothing.
type Batch struct {
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	Sync      bool
}

// Append appends a batch, and returns, with b.Sync, when it and all before it are durable. The
// log keeps the entries, which must not be modified any more.
//
// Entries have consecutive indexes, and begin at LastIndex+1 at the latest; if they begin
// before, they and nothing else come in place of what was from there on. Entries that are
// compacted already are left out, and if the last one is below what is committed or guarded,
// they are all there already, and nothing is replaced.
//
// Refused before anything is written: ErrTruncatesCommitted, ErrInvalid, ErrNoSpace. After any
// other error, the disk's, it is not known what is durable: the log is dead, and every later
// call returns that error.
func (l *Log) Append(b Batch) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	hs, entries, err := l.check(b)
	if err != nil {
		return err
	}
	if !hs.ok && len(entries) == 0 {
		return l.sync(b.Sync)
	}
	size := batchLength(hs, entries)
	if size > maxPayload {
		return invalid("a batch of %d bytes is too large", size)
	}
	if err := l.makeRoom(size, entries); err != nil {
		return err
	}
	l.startRecord(size)
	l.buf, l.offs = appendBatch(l.buf, hs, entries, l.offs[:0])
	begin := uint32(l.at.end)
	if err := l.write(typeBatch, b.Sync); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.end = l.at.end
	if hs.ok {
		l.state = hs
	}
	if len(entries) > 0 {
		l.index(entries, begin)
	}
	return nil
}

// index makes the entries visible, whose places in the record at begin are in l.offs; l.mu is
// held.
func (l *Log) index(entries []*raftpb.Entry, begin uint32) {
	first := entries[0].GetIndex()
	l.cut(first)
	s := l.active
	if len(s.offs) == 0 {
		l.live = append(l.live, s)
	}
	for i, e := range entries {
		s.offs = append(s.offs, begin+l.offs[i])
		l.runs = l.runs.add(e.GetIndex(), e.GetTerm())
	}
	s.n = len(s.offs)
	l.last = first + uint64(len(entries)) - 1
	l.cache.put(entries)
}

// usable tells why the log takes nothing; l.wmu is held.
func (l *Log) usable() error {
	switch {
	case l.closed: // set by Close, which holds wmu too
		return ErrClosed
	case l.o.ReadOnly:
		return ErrReadOnly
	}
	return l.err
}

// die is the end of a log whose disk has failed: what is durable is not known any more, and
// another sync would not tell.
func (l *Log) die(doing, name string, err error) error {
	l.err = fmt.Errorf("filelog: %s %s failed, and the log accepts no more writes: %w", doing, name, err)
	return l.err
}

// check refuses what cannot follow, and returns what is to be written.
func (l *Log) check(b Batch) (state, []*raftpb.Entry, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	hs, entries := stateOf(b.HardState), b.Entries
	if hs.ok && l.state.ok {
		switch {
		case hs.term < l.state.term:
			return hs, nil, invalid("a hard state of term %d after one of term %d", hs.term, l.state.term)
		case hs.term == l.state.term && l.state.vote != 0 && hs.vote != l.state.vote:
			return hs, nil, invalid("a vote for %x in term %d after one for %x", hs.vote, hs.term, l.state.vote)
		}
		hs.raise(l.state.commit)
	}
	hs.raise(l.mark.index)
	last := l.last
	if len(entries) > 0 {
		var err error
		if entries, err = l.checkEntries(entries); err != nil {
			return hs, nil, err
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1].GetIndex()
		}
	}
	if hs.ok && hs.commit > last {
		return hs, nil, invalid("commit index %d is beyond the last entry, %d", hs.commit, last)
	}
	return hs, entries, nil
}

func (l *Log) checkEntries(entries []*raftpb.Entry) ([]*raftpb.Entry, error) {
	first, end := entries[0].GetIndex(), entries[len(entries)-1].GetIndex()
	if first == 0 || first > l.last+1 {
		return nil, invalid("entries from %d on, where the log ends at %d", first, l.last)
	}
	keep := min(max(l.state.commit, l.guard, l.mark.index), l.last)
	var before uint64
	if first > l.mark.index {
		before = l.termLocked(first - 1)
	}
	for i, e := range entries {
		index, term := e.GetIndex(), e.GetTerm()
		switch {
		case index != first+uint64(i):
			return nil, invalid("entry %d is followed by %d", first+uint64(i)-1, index)
		case term < before:
			return nil, invalid("entry %d of term %d after one of term %d", index, term, before)
		case index >= l.mark.index && index <= keep && term != l.termLocked(index):
			return nil, fmt.Errorf("%w: entry %d has term %d and would get term %d; committed, applied or compacted is "+
				"everything through %d; nothing was written", ErrTruncatesCommitted, index, l.termLocked(index), term, keep)
		case e.GetType() < 0 || e.GetType() > math.MaxUint8:
			return nil, invalid("entry %d is of type %d", index, e.GetType())
		}
		before = term
	}
	if end < keep || end <= l.mark.index {
		return nil, nil
	}
	if first <= l.mark.index {
		entries = entries[l.mark.index+1-first:]
	}
	return entries, nil
}

// startRecord begins a record of that payload in l.buf.
func (l *Log) startRecord(size int64) {
	if cap(l.buf) < headSize+int(size) || cap(l.buf) > 16<<20 {
		l.buf = make([]byte, 0, headSize+max(int(size), 64<<10))
	}
	l.buf = append(l.buf[:0], make([]byte, headSize)...)
}

// write writes the record in l.buf, and syncs it.
func (l *Log) write(kind byte, sync bool) error {
	h := head{kind: kind, number: l.at.number + 1, synced: l.synced}
	crc := l.active.seal(l.buf, l.at.end, h, l.at.crc)
	if _, err := l.active.file.WriteAt(l.buf, l.at.end); err != nil {
		return l.die("writing to", l.active.name, err)
	}
	l.at = walked{aligned(l.at.end + int64(len(l.buf))), h.number, crc, chain(l.at.chain, crc)}
	return l.sync(sync)
}

func (l *Log) sync(sync bool) error {
	if !sync || l.synced == l.at.number {
		return nil
	}
	if err := l.active.file.Sync(); err != nil {
		return l.die("syncing", l.active.name, err)
	}
	l.synced = l.at.number
	return nil
}

// create seals the active segment and begins the next one, with room for a payload of that
// size. When it returns, that is durable.
func (l *Log) create(h header, size int64) error {
	if err := l.reserve(size); err != nil {
		return err
	}
	if err := l.sealActive(); err != nil {
		return err
	}
	h.chain = l.at.chain
	next, at, err := l.begin(h)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active, l.at, l.synced = next, at, at.number
	l.segs = append(l.segs, next)
	return nil
}

// sealActive makes the active segment durable, and as long as what is written: nobody writes
// to it any more.
func (l *Log) sealActive() error {
	s := l.active
	if s == nil {
		return nil
	}
	if s.size > l.at.end {
		if err := s.file.Truncate(l.at.end); err != nil {
			return l.die("sealing", s.name, err)
		}
		s.size = l.at.end
	}
	if err := s.file.Sync(); err != nil {
		return l.die("syncing", s.name, err)
	}
	l.synced = l.at.number
	return nil
}

// begin makes the spare the segment with that header. It gets its name only when its header is
// durable: so no segment is ever without one.
func (l *Log) begin(h header) (*segment, walked, error) {
	temporary, name := path.Join(l.dir, spareName), path.Join(l.dir, h.name())
	number := l.at.number + 1
	l.startRecord(headerSize)
	l.buf = h.append(l.buf)
	crc := h.seal(l.buf, 0, head{kind: typeHeader, number: number, synced: number - 1}, 0)
	f := l.spare
	l.spare = nil
	if _, err := f.WriteAt(l.buf, 0); err != nil {
		return nil, walked{}, l.die("writing to", temporary, errors.Join(err, f.Close()))
	}
	if err := f.Sync(); err != nil {
		return nil, walked{}, l.die("syncing", temporary, errors.Join(err, f.Close()))
	}
	if err := f.Close(); err != nil { // some systems rename no open file
		return nil, walked{}, l.die("closing", temporary, err)
	}
	if err := l.fs.Rename(temporary, name); err != nil {
		return nil, walked{}, l.die("naming", name, err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return nil, walked{}, l.die("syncing", l.dir, err)
	}
	f, err := l.reopen(name)
	if err != nil {
		return nil, walked{}, err
	}
	at := walked{aligned(headSize + headerSize), number, crc, chain(0, crc)}
	return &segment{place: h.place, name: name, file: f, size: l.room, end: at.end}, at, nil
}

func (l *Log) reopen(name string) (disk.File, error) {
	f, err := l.fs.Open(name)
	if err != nil {
		return nil, l.die("opening", name, err)
	}
	return f, nil
}
