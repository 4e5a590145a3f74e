package simulation

// This file simulates the disk of a peer: the log, the snapshots, crashes and errors.

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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

const (
	snapDir = "snapshots"
	logDir  = "log"
)

// unsyncedDisk is a disk whose syncs report success and have no effect.
type unsyncedDisk struct{ disk.FS }

func (l unsyncedDisk) SyncDir(string) error { return nil }
func (l unsyncedDisk) Create(name string) (disk.File, error) {
	f, err := l.FS.Create(name)
	return unsyncedFile{f}, err
}

func (l unsyncedDisk) Open(name string) (disk.File, error) {
	f, err := l.FS.Open(name)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ disk.File }

func (unsyncedFile) Sync() error { return nil }

// createFounder creates the data of a peer that founds the cluster with the given voters.
func (p *peer) createFounder(voters []api.Peer) {
	p.seeds = voters
	var numbered []replica.Peer
	for _, v := range voters {
		numbered = append(numbered, replica.Numbered(cluster, v))
	}
	state := replica.New(numbered, p.h.window, election)
	p.requireNoError(p.disk.MkdirAll(snapDir))
	writer, err := snapshot.Create(p.disk, snapDir, snapshot.Meta{
		Cluster: cluster, Index: 1, Term: 1, Conf: state.Members.ConfState(), Created: p.Wall(),
	})
	p.requireNoError(err)
	_, err = state.View().WriteTo(writer.Tables())
	p.requireNoError(err)
	_, err = writer.Data().Write(stateMachine{index: 1}.encode())
	p.requireNoError(err)
	p.requireNoError(writer.Commit())
	p.known.Founding = identity.Founding(cluster, voters, p.h.window, election)
	p.createLog(1, 1)
}

// createFromSnapshot creates the data of a peer that joins the cluster, from the newest snapshot of
// another peer. It reports whether the joining peer is a voter according to the snapshot.
func (p *peer) createFromSnapshot(from *peer, seeds []api.Peer) (isVoter bool) {
	p.seeds = seeds
	raw, _ := from.newestFile()
	p.requireNoError(p.disk.MkdirAll(snapDir))
	r, err := snapshot.Install(p.disk, snapDir, bytes.NewReader(raw))
	p.requireNoError(err)
	p.known.Founding = from.known.Founding
	p.createLog(r.Meta().Index, r.Meta().Term)
	p.requireNoError(r.Close())
	return slices.Contains(r.Meta().Conf.GetVoters(), p.raft)
}

func (p *peer) createLog(index, term uint64) {
	p.requireNoError(p.disk.SyncDir("."))
	log, err := filelog.Open(p.disk, logDir, p.logOptions())
	p.requireNoError(err)
	p.requireNoError(log.Reset(index, term))
	p.requireNoError(log.Close())
	p.requireNoError(identity.MarkLog(p.disk, logDir, p.instance))
	p.requireNoError(p.disk.SyncDir("."))
	p.durable = durableLog{before: index, term: term}
}

func (p *peer) requireNoError(err error) {
	if err != nil {
		p.h.failf("%s: %v", p.ID, err)
	}
}

func (p *peer) logOptions() filelog.Options {
	return filelog.Options{SegmentSize: 32 << 10, CacheSize: 8 << 10}
}

// newestFile returns the content and the metadata of the newest snapshot file on the disk.
func (p *peer) newestFile() ([]byte, snapshot.Meta) {
	r, err := snapshot.OpenFile(p.fs, snapDir+"/"+snapshot.Name)
	p.requireNoError(err)
	defer r.Close()
	raw, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	p.requireNoError(err)
	return raw, r.Meta()
}

// openDisk reads the data on the disk of a peer. Like raftlog.Open, it returns an error if the disk has no
// space.
func (p *peer) openDisk() (*replica.State, core.Snapshot, error) {
	r, err := snapshot.Open(p.fs, snapDir)
	p.requireNoError(err)
	defer r.Close()
	state, data := p.readSnapshot(r)
	p.stateMachine = decodeStateMachine(data)
	m := r.Meta()
	p.log, err = filelog.Open(p.fs, logDir, p.logOptions())
	if errors.Is(err, syscall.ENOSPC) {
		return nil, core.Snapshot{}, err
	}
	p.requireNoError(err)
	last, err := p.log.LastIndex()
	p.requireNoError(err)
	if term, err := p.log.Term(m.Index); last < m.Index || err != nil || term != m.Term {
		// The power failed after a snapshot was installed and before the log was reset, so the log does not
		// contain the last entry of the snapshot. Reset the log now.
		if err := p.log.Reset(m.Index, m.Term); err != nil {
			p.requireNoError(unexpectedError(err))
			p.log.Close()
			return nil, core.Snapshot{}, err
		}
	}
	p.appender = filelog.NewAppender(p.log)
	p.checkDurable()
	p.newest = m.Index
	p.h.checker.checkStateMachine(p)
	p.h.checker.checkReplica(p, state)
	return state, core.Snapshot{Index: m.Index, Term: m.Term, Size: r.Size(), Members: state.Members.Index}, nil
}

func (p *peer) readSnapshot(r *snapshot.Reader) (*replica.State, []byte) {
	state, err := replica.Read(r.Tables())
	p.requireNoError(err)
	d := r.Data()
	data, err := io.ReadAll(d)
	p.requireNoError(err)
	p.requireNoError(d.Close())
	return state, data
}

// startWrite starts some of the Writes in flight, unless the disk is busy.
func (p *peer) startWrite() {
	if len(p.writing) > 0 || len(p.writes) == 0 || p.diskStalled || p.waitingForSpace {
		return
	}
	n := 1 + p.h.rand.IntN(len(p.writes))
	if p.h.recovering {
		n = len(p.writes)
	}
	p.writing = p.writes[:n]
	d := p.h.duration(50*time.Microsecond, 800*time.Microsecond)
	if p.diskDelay > 0 {
		d = p.h.duration(0, p.diskDelay)
	}
	p.scheduleInput(d, p.finishWrite)
}

// finishWrite completes the Writes that the disk has started, and reports them to the core.
func (p *peer) finishWrite() {
	done := p.writing
	p.writing, p.writes = nil, p.writes[len(done):]
	var installed []*core.Installed
	for n, work := range done {
		p.h.checker.checkWrite(p, work)
		i, err := p.write(work)
		if err != nil {
			p.writes = append(slices.Clone(done[n:]), p.writes...)
			done = done[:n]
			if errors.Is(err, filelog.ErrNoSpace) {
				if p.waitForSpace(); !p.up {
					return
				}
				break
			}
			p.handleDiskError(err)
			return
		}
		installed = append(installed, i)
		p.durable.addWrite(work)
	}
	for i, work := range done {
		p.core.ReportStored(work, installed[i])
	}
	p.startWrite()
}

// waitForSpace makes the remaining Writes wait for disk space, as a real peer does. Meanwhile it writes and
// sends the votes in these Writes, which do not depend on the entries that lack space.
func (p *peer) waitForSpace() {
	p.waitingForSpace = true
	p.h.checker.counts["waited"]++
	for _, work := range p.writes {
		votes, err := work.TakeVotes(func(hs *raftpb.HardState) error {
			err := p.appender.Append(filelog.Batch{HardState: hs, Sync: true})
			if err == nil {
				p.durable.addWrite(&core.Write{HardState: hs, Sync: true})
			}
			return err
		})
		if err != nil {
			if !errors.Is(err, filelog.ErrNoSpace) {
				p.handleDiskError(err)
			}
			break
		}
		for _, s := range votes {
			p.h.checker.counts["votesAhead"]++
			p.h.send(p, s.To, s.Data)
		}
	}
	p.scheduleInput(p.h.duration(time.Millisecond, 500*time.Millisecond), func() { p.waitingForSpace = false })
}

// reserveSpace sometimes tries again to allocate the disk space that was missing, as a real peer does.
func (p *peer) reserveSpace() {
	if p.appender.FreeSpace() == math.MaxInt64 || len(p.writing) > 0 || p.diskStalled || !p.h.randomBool(0.05) {
		return
	}
	if err := p.appender.Reserve(); err != nil && !errors.Is(err, filelog.ErrNoSpace) {
		p.handleDiskError(err)
	}
}

// write writes one Write of the core to the disk.
func (p *peer) write(work *core.Write) (installed *core.Installed, err error) {
	if s := work.Snapshot; s != nil {
		index := s.GetMetadata().GetIndex()
		raw := p.received[index]
		if raw == nil {
			return nil, fmt.Errorf("snapshot %d was not received", index)
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
		state, data := p.readSnapshot(r)
		state.Disabled = p.h.disabled
		p.restores[m.Index] = data
		p.newest = m.Index
		if err := p.appender.Reset(m.Index, m.Term); err != nil {
			return nil, err
		}
		p.h.checker.checkReplica(p, state)
		p.h.checker.counts["installs"]++
		installed = &core.Installed{Replica: state, Snapshot: core.Snapshot{
			Index: m.Index, Term: m.Term, Size: r.Size(), Members: state.Members.Index,
		}}
	}
	if err := p.appender.Append(filelog.Batch{HardState: work.HardState, Entries: work.Entries, Sync: work.Sync || work.Snapshot != nil}); err != nil {
		return nil, err
	}
	if work.Compact != 0 {
		p.h.tracef("%s: compacts through %d", p.ID, work.Compact)
		p.h.checker.counts["compactions"]++
		if err := p.appender.Compact(work.Compact); err != nil {
			return nil, err
		}
	}
	return installed, nil
}

// crash stops the process of a peer, usually during a Write, and loses the data that was not synced.
func (p *peer) crash() {
	if !p.up {
		return
	}
	p.h.tracef("%s: crashes", p.ID)
	p.h.checker.counts["crashes"]++
	if p.h.randomBool(0.7) { // let the disk fail during one of the next Writes
		p.disk.CrashAt(p.disk.Ops() + 1 + p.h.rand.IntN(6))
		for _, work := range p.writes {
			if _, err := p.write(work); err != nil {
				break
			}
			p.h.checker.checkWrite(p, work)
		}
	}
	p.powerOff()
}

// powerOff stops the process of a peer, and loses the data on its disk that is not durable.
func (p *peer) powerOff() {
	p.interrupted = p.writes
	p.up = false
	p.process++
	p.disk.CrashAt(p.disk.Ops() + 1)
	p.log.Close() // without power, Close cannot sync the log
	p.log = nil
	p.disk = p.disk.Crash()
	p.fs = p.diskOf()
	p.h.clients.failCalls(p)
	if x := p.h.lostDisk; x != nil && x.leader == p {
		p.h.replaceLostDisk(x.p)
	}
}

// handleDiskError stops the process because of an error of its disk, as a real peer does. It is then unknown
// which data is durable, so the process starts again later and reads the disk.
func (p *peer) handleDiskError(err error) {
	p.requireNoError(unexpectedError(err))
	p.h.tracef("%s: stops after a fault: %v", p.ID, err)
	p.h.checker.counts["faults"]++
	if errors.Is(err, syscall.ENOSPC) {
		p.h.checker.counts["noSpace"]++
	}
	p.powerOff()
	p.h.schedule(p.h.duration(time.Millisecond, time.Second), p.start)
}

// fillDisk makes the disk of a peer full for the time d: files cannot grow.
func (p *peer) fillDisk(d time.Duration) {
	p.h.tracef("%s: disk is full for %v", p.ID, d)
	p.setDiskFull(true)
	p.h.schedule(d, func() { p.setDiskFull(false) })
}

func (p *peer) setDiskFull(full bool) {
	p.diskFull = full
	if full {
		p.disk.SetSpace(0)
	} else {
		p.disk.SetSpace(-1)
	}
}

// unexpectedError returns err, or nil if a fault of the simulation has caused the error.
func unexpectedError(err error) error {
	if errors.Is(err, testenv.ErrIO) || errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
