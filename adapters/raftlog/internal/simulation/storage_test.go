package simulation

// A peer's disk: the log and the snapshots, crashes, and what must be there after them.

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

const (
	snapDir = "snapshots"
	logDir  = "log"
)

// liar is a disk that says that it has synced.
type liar struct{ disk.FS }

func (l liar) SyncDir(string) error { return nil }
func (l liar) Create(name string) (disk.File, error) {
	f, err := l.FS.Create(name)
	return liarFile{f}, err
}

func (l liar) Open(name string) (disk.File, error) {
	f, err := l.FS.Open(name)
	return liarFile{f}, err
}

type liarFile struct{ disk.File }

func (liarFile) Sync() error { return nil }

// found makes the disk of one of the first voters.
func (p *peer) found(voters []*peer) {
	var who []entry.Peer
	for _, v := range voters {
		who = append(who, replica.With(cluster, v.Peer))
		p.seeds = append(p.seeds, v.Peer)
	}
	tables := replica.New(who, p.w.window, election)
	p.must(p.disk.MkdirAll(snapDir))
	writer, err := snapshot.Create(p.disk, snapDir, snapshot.Meta{
		Cluster: cluster, Index: 1, Term: 1, Conf: tables.Members.ConfState(), Created: p.Wall(),
	})
	p.must(err)
	_, err = tables.View().WriteTo(writer.Tables())
	p.must(err)
	_, err = writer.Data().Write(machine{index: 1}.save())
	p.must(err)
	p.must(writer.Commit())
	p.prepare(1, 1)
}

// join makes the disk of a peer that is to join: with the newest snapshot of another one.
func (p *peer) join(from *peer, seeds []*peer) {
	for _, s := range seeds {
		p.seeds = append(p.seeds, s.Peer)
	}
	raw, _ := from.newestFile()
	p.must(p.disk.MkdirAll(snapDir))
	r, err := snapshot.Install(p.disk, snapDir, bytes.NewReader(raw))
	p.must(err)
	p.prepare(r.Meta().Index, r.Meta().Term)
	p.must(r.Close())
}

func (p *peer) prepare(index, term uint64) {
	p.must(p.disk.SyncDir("."))
	log, err := filelog.Open(p.disk, logDir, p.options())
	p.must(err)
	p.must(log.Reset(index, term))
	p.must(log.Close())
	p.must(p.disk.SyncDir("."))
	p.stored = durable{before: index, term: term}
}

func (p *peer) must(err error) {
	if err != nil {
		p.w.failf("%s: %v", p.ID, err)
	}
}

func (p *peer) options() filelog.Options {
	return filelog.Options{SegmentSize: 32 << 10, CacheSize: 8 << 10}
}

// newestFile is the newest snapshot as it is on disk.
func (p *peer) newestFile() ([]byte, uint64) {
	r, err := snapshot.OpenFile(p.fs, snapDir+"/"+snapshot.Name)
	p.must(err)
	defer r.Close()
	raw, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	p.must(err)
	return raw, r.Meta().Index
}

// open reads the disk.
func (p *peer) open() (*replica.State, core.Snapshot) {
	r, err := snapshot.Open(p.fs, snapDir)
	p.must(err)
	defer r.Close()
	tables, data := p.contents(r)
	p.machine = load(data)
	m := r.Meta()
	p.log, err = filelog.Open(p.fs, logDir, p.options())
	p.must(err)
	last, err := p.log.LastIndex()
	p.must(err)
	if term, err := p.log.Term(m.Index); last < m.Index || err != nil || term != m.Term {
		// The power failed after a snapshot was installed and before the log began anew.
		p.must(p.log.Reset(m.Index, m.Term))
	}
	p.recovered()
	p.newest = m.Index
	p.w.truth.applied(p)
	p.w.truth.tables(p, tables)
	return tables, core.Snapshot{Index: m.Index, Term: m.Term, Size: r.Size(), Members: tables.Members.Index}
}

func (p *peer) contents(r *snapshot.Reader) (*replica.State, []byte) {
	tables, err := replica.Read(r.Tables())
	p.must(err)
	d := r.Data()
	data, err := io.ReadAll(d)
	p.must(err)
	p.must(d.Close())
	return tables, data
}

// flush has the disk begin with what waits, unless it is at work.
func (p *peer) flush() {
	if len(p.writing) > 0 || len(p.work) == 0 {
		return
	}
	n := 1 + p.w.IntN(len(p.work))
	if p.w.calm {
		n = len(p.work)
	}
	p.writing = p.work[:n]
	d := p.w.span(50*time.Microsecond, 800*time.Microsecond)
	if p.slow > 0 {
		d = p.w.span(0, p.slow)
	}
	p.later(d, p.written)
}

// written is when the disk has done what it had begun.
func (p *peer) written() {
	done := p.writing
	p.writing, p.work = nil, p.work[len(done):]
	var installed []*core.Installed
	for _, work := range done {
		p.w.truth.writes(p, work)
		i, err := p.write(work)
		if err != nil {
			p.w.failf("%s: write: %v", p.ID, err)
		}
		installed = append(installed, i)
		p.stored.do(work)
	}
	for i, work := range done {
		p.core.Stored(work, installed[i])
	}
	p.flush()
}

// write does one work.
func (p *peer) write(work *core.Work) (installed *core.Installed, err error) {
	if s := work.Snapshot; s != nil {
		index := s.GetMetadata().GetIndex()
		raw := p.received[index]
		if raw == nil {
			return nil, fmt.Errorf("snapshot %d is to be installed, and was not received", index)
		}
		clear(p.received)
		r, err := snapshot.Install(p.fs, snapDir, bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		m := r.Meta()
		tables, data := p.contents(r)
		tables.DedupeOff = !p.w.dedupe
		p.restores[m.Index] = data
		p.newest = m.Index
		if err := p.log.Reset(m.Index, m.Term); err != nil {
			return nil, err
		}
		p.w.truth.tables(p, tables)
		p.w.truth.installs++
		installed = &core.Installed{Tables: tables, Snapshot: core.Snapshot{
			Index: m.Index, Term: m.Term, Size: r.Size(), Members: tables.Members.Index,
		}}
	}
	if err := p.log.Append(filelog.Batch{HardState: work.HardState, Entries: work.Entries, Sync: work.Sync}); err != nil {
		return nil, err
	}
	if work.Compact != 0 {
		p.w.tracef("%s: compacts through %d", p.ID, work.Compact)
		p.w.truth.compactions++
		if err := p.log.Compact(work.Compact); err != nil {
			return nil, err
		}
	}
	return installed, nil
}

// crash is the end of the process and of all that was not synced.
func (p *peer) crash() {
	if !p.up {
		return
	}
	p.w.tracef("%s: crashes", p.ID)
	p.w.truth.crashes++
	if p.w.chance(0.7) { // in the middle of what it was about
		p.disk.CrashAt(p.disk.Ops() + 1 + p.w.IntN(6))
		for _, work := range p.work {
			if _, err := p.write(work); err != nil {
				break
			}
			p.w.truth.writes(p, work)
		}
	}
	p.begun = p.work
	p.up = false
	p.process++
	p.disk.CrashAt(p.disk.Ops() + 1)
	p.log.Close() // which would sync, if the disk had power
	p.log = nil
	p.disk = p.disk.Crash()
	p.fs = p.mount()
	p.w.users.crashed(p)
}

// durable is what is known of a log on disk: the works that were done, and from unsynced on
// those that a crash may undo.
type durable struct {
	before, term uint64   // the last compacted entry
	terms        []uint64 // of the entries behind it
	hard         hard
	unsynced     []*core.Work
}

type hard struct{ term, vote uint64 }

// do does a work.
func (d *durable) do(w *core.Work) {
	d.unsynced = append(d.unsynced, w)
	if w.Sync || w.Snapshot != nil {
		for _, w := range d.unsynced {
			d.change(w)
		}
		d.unsynced = nil
	}
}

func (d *durable) reset(s *raftpb.Snapshot) {
	d.before, d.term, d.terms = s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm(), nil
}

func (d *durable) change(w *core.Work) {
	if w.Snapshot != nil {
		d.reset(w.Snapshot)
	}
	if w.HardState != nil {
		d.hard = hard{w.HardState.GetTerm(), w.HardState.GetVote()}
	}
	for i, e := range w.Entries {
		if e.GetIndex() <= d.before {
			continue
		}
		if i == 0 || e.GetIndex() == d.before+1 {
			d.terms = d.terms[:e.GetIndex()-d.before-1]
		}
		d.terms = append(d.terms, e.GetTerm())
	}
	if w.Compact > d.before {
		d.term = d.terms[w.Compact-d.before-1]
		d.terms = slices.Clone(d.terms[w.Compact-d.before:])
		d.before = w.Compact
	}
}

func (d *durable) equal(e *durable) bool {
	return d.before == e.before && d.term == e.term && d.hard == e.hard && slices.Equal(d.terms, e.terms)
}

// recovered checks what the log is after a crash: what was acknowledged, and of what was
// under way the first so many works.
func (p *peer) recovered() {
	var is durable
	first, err := p.log.FirstIndex()
	p.must(err)
	last, err := p.log.LastIndex()
	p.must(err)
	is.before = first - 1
	is.term, err = p.log.Term(is.before)
	p.must(err)
	for i := first; i <= last; i++ {
		term, err := p.log.Term(i)
		p.must(err)
		is.terms = append(is.terms, term)
	}
	if hs := p.log.HardState(); hs != nil {
		is.hard = hard{hs.GetTerm(), hs.GetVote()}
	}
	may := p.stored
	may.terms, may.unsynced = slices.Clone(may.terms), nil
	found := may.equal(&is)
	for _, w := range append(p.stored.unsynced, p.begun...) {
		if found {
			break
		}
		if w.Snapshot != nil {
			may.reset(w.Snapshot)
			found = found || may.equal(&is)
		}
		if w.Compact != 0 && !found { // the entries, and then the mark
			part := *w
			part.Compact = 0
			may.change(&part)
			found = found || may.equal(&is)
		}
		may.change(w)
		found = found || may.equal(&is)
	}
	if !found {
		p.w.failf("%s: the log was %v when the power failed, with %d works not acknowledged, and is %v now",
			p.ID, p.stored, len(p.stored.unsynced)+len(p.begun), is)
	}
	is.unsynced = nil
	p.stored, p.begun = is, nil
}
