package simulation

// A peer's disk: the log and the snapshots, crashes, and what must be there after them.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
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
func (p *peer) found(voters []api.Peer) {
	p.seeds = voters
	var who []entry.Peer
	for _, v := range voters {
		who = append(who, replica.Numbered(cluster, v))
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
	p.known.Founding = identity.Founding(cluster, voters, p.w.window, election)
	p.prepare(1, 1)
}

// join makes the disk of a peer that is to join: with the newest snapshot of another one.
func (p *peer) join(from *peer, seeds []api.Peer) {
	p.seeds = seeds
	raw, _ := from.newestFile()
	p.must(p.disk.MkdirAll(snapDir))
	r, err := snapshot.Install(p.disk, snapDir, bytes.NewReader(raw))
	p.must(err)
	p.known.Founding = from.known.Founding
	p.prepare(r.Meta().Index, r.Meta().Term)
	p.must(r.Close())
}

func (p *peer) prepare(index, term uint64) {
	p.must(p.disk.SyncDir("."))
	log, err := filelog.Open(p.disk, logDir, p.options())
	p.must(err)
	p.must(log.Reset(index, term))
	p.must(log.Close())
	p.must(identity.MarkLog(p.disk, logDir, p.instance))
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
func (p *peer) newestFile() ([]byte, snapshot.Meta) {
	r, err := snapshot.OpenFile(p.fs, snapDir+"/"+snapshot.Name)
	p.must(err)
	defer r.Close()
	raw, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	p.must(err)
	return raw, r.Meta()
}

// open reads the disk. The error is that of one without room, as a node's Open returns it.
func (p *peer) open() (*replica.State, core.Snapshot, error) {
	r, err := snapshot.Open(p.fs, snapDir)
	p.must(err)
	defer r.Close()
	tables, data := p.contents(r)
	p.machine = load(data)
	m := r.Meta()
	p.log, err = filelog.Open(p.fs, logDir, p.options())
	if errors.Is(err, syscall.ENOSPC) {
		return nil, core.Snapshot{}, err
	}
	p.must(err)
	last, err := p.log.LastIndex()
	p.must(err)
	if term, err := p.log.Term(m.Index); last < m.Index || err != nil || term != m.Term {
		// The power failed after a snapshot was installed and before the log began anew.
		if err := p.log.Reset(m.Index, m.Term); err != nil {
			p.must(unlessBad(err))
			p.log.Close()
			return nil, core.Snapshot{}, err
		}
	}
	p.appender = filelog.NewAppender(p.log)
	p.recovered()
	p.newest = m.Index
	p.w.truth.applied(p)
	p.w.truth.tables(p, tables)
	return tables, core.Snapshot{Index: m.Index, Term: m.Term, Size: r.Size(), Members: tables.Members.Index}, nil
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
	if len(p.writing) > 0 || len(p.work) == 0 || p.stalls || p.waits {
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
	for n, work := range done {
		p.w.truth.writes(p, work)
		i, err := p.write(work)
		if err != nil {
			p.work = append(slices.Clone(done[n:]), p.work...)
			done = done[:n]
			if errors.Is(err, filelog.ErrNoSpace) {
				if p.waitForSpace(); !p.up {
					return
				}
				break
			}
			p.fault(err)
			return
		}
		installed = append(installed, i)
		p.stored.do(work)
	}
	for i, work := range done {
		p.core.ReportStored(work, installed[i])
	}
	p.flush()
}

// waitForSpace has the work that is left wait, as a node does, and votes written ahead of it.
func (p *peer) waitForSpace() {
	p.waits = true
	p.w.truth.waited++
	for _, work := range p.work {
		votes, err := work.TakeVotes(func(hs *raftpb.HardState) error {
			err := p.appender.Append(filelog.Batch{HardState: hs, Sync: true})
			if err == nil {
				p.stored.do(&core.Write{HardState: hs, Sync: true})
			}
			return err
		})
		if err != nil {
			if !errors.Is(err, filelog.ErrNoSpace) {
				p.fault(err)
			}
			break
		}
		for _, s := range votes {
			p.w.truth.votesAhead++
			p.w.send(p, s.To, s.Data)
		}
	}
	p.later(p.w.span(time.Millisecond, 500*time.Millisecond), func() { p.waits = false })
}

// lookForSpace tries now and then to allocate space that was not there, as a node does.
func (p *peer) lookForSpace() {
	if p.appender.Room() == math.MaxInt64 || len(p.writing) > 0 || p.stalls || !p.w.chance(0.05) {
		return
	}
	if err := p.appender.Reserve(); err != nil && !errors.Is(err, filelog.ErrNoSpace) {
		p.fault(err)
	}
}

// write does one work.
func (p *peer) write(work *core.Write) (installed *core.Installed, err error) {
	if s := work.Snapshot; s != nil {
		index := s.GetMetadata().GetIndex()
		raw := p.received[index]
		if raw == nil {
			return nil, fmt.Errorf("snapshot %d is to be installed, and was not received", index)
		}
		if err := p.appender.Reserve(); err != nil {
			return nil, err
		}
		clear(p.received)
		r, err := snapshot.Install(p.fs, snapDir, bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		m := r.Meta()
		tables, data := p.contents(r)
		tables.Disabled = p.w.disabled
		p.restores[m.Index] = data
		p.newest = m.Index
		if err := p.appender.Reset(m.Index, m.Term); err != nil {
			return nil, err
		}
		p.w.truth.tables(p, tables)
		p.w.truth.installs++
		installed = &core.Installed{Replica: tables, Snapshot: core.Snapshot{
			Index: m.Index, Term: m.Term, Size: r.Size(), Members: tables.Members.Index,
		}}
	}
	if err := p.appender.Append(filelog.Batch{HardState: work.HardState, Entries: work.Entries, Sync: work.Sync || work.Snapshot != nil}); err != nil {
		return nil, err
	}
	if work.Compact != 0 {
		p.w.tracef("%s: compacts through %d", p.ID, work.Compact)
		p.w.truth.compactions++
		if err := p.appender.Compact(work.Compact); err != nil {
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
	p.end()
}

// end is that of a process, and of all that its disk does not have for certain.
func (p *peer) end() {
	p.begun = p.work
	p.up = false
	p.process++
	p.disk.CrashAt(p.disk.Ops() + 1)
	p.log.Close() // which would sync, if the disk had power
	p.log = nil
	p.disk = p.disk.Crash()
	p.fs = p.mount()
	p.w.users.crashed(p)
	if x := p.w.wiped; x != nil && x.leader == p {
		p.w.lose(x.p)
	}
}

// fault is the end of the process by an error of its disk, as it is that of a node. Nobody
// knows what the disk has after that, so it goes on, later, with what is durable.
func (p *peer) fault(err error) {
	p.must(unlessBad(err))
	p.w.tracef("%s: ends by a fault: %v", p.ID, err)
	p.w.truth.faults++
	if errors.Is(err, syscall.ENOSPC) {
		p.w.truth.noRoom++
	}
	p.end()
	p.w.after(p.w.span(time.Millisecond, time.Second), p.start)
}

// full has the disk have no room for a while: files do not grow any more.
func (p *peer) full(d time.Duration) {
	p.w.tracef("%s: disk is full for %v", p.ID, d)
	p.setFull(true)
	p.w.after(d, func() { p.setFull(false) })
}

func (p *peer) setFull(full bool) {
	p.isFull = full
	if full {
		p.disk.SetSpace(0)
	} else {
		p.disk.SetSpace(-1)
	}
}

// unlessBad is an error that the weather has not made, or nil.
func unlessBad(err error) error {
	if errors.Is(err, crashdisk.ErrIO) || errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
