package simulation

// This file simulates the state machine of a peer.

import (
	"encoding/binary"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// stateMachine computes a checksum of all updates in the order in which they are applied.
type stateMachine struct {
	index, updates uint64
	chain          uint64
}

func (m *stateMachine) applyUpdate(e api.Entry) {
	m.updates++
	for _, b := range [][]byte{e.ID[:], e.Data} {
		for _, c := range b {
			m.chain = (m.chain ^ uint64(c)) * 1099511628211
		}
	}
}

func (m stateMachine) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.index)
	b = binary.BigEndian.AppendUint64(b, m.updates)
	return binary.BigEndian.AppendUint64(b, m.chain)
}

func decodeStateMachine(b []byte) stateMachine {
	return stateMachine{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

// applyNow starts the next request to the state machine, now or a little later. It reports whether the core
// may already have new output because of the request.
func (p *peer) applyNow() bool {
	if p.applying || len(p.apply) == 0 {
		return false
	}
	if !p.h.recovering && p.h.randomBool(0.3) {
		p.applying = true
		p.scheduleInput(p.h.duration(0, 3*time.Millisecond), func() {
			p.applying = false
			p.applyNext()
		})
		return false
	}
	p.applyNext()
	return true
}

func (p *peer) applyNext() {
	a := p.apply[0]
	p.apply = p.apply[1:]
	switch {
	case a.Create != nil:
		p.createSnapshot(a.Create)
	case a.Restore != 0:
		m := decodeStateMachine(p.restores[a.Restore])
		delete(p.restores, a.Restore)
		if m.index != a.Restore || m.index <= p.stateMachine.index {
			p.h.failf("%s: the state machine at %d is restored to %d from a snapshot of %d", p.ID, p.stateMachine.index, a.Restore, m.index)
		}
		p.stateMachine = m
		p.h.checker.checkStateMachine(p)
		p.core.ReportApplied(m.index)
	default:
		m, updates := &p.stateMachine, a.Updates
		if a.Through <= m.index {
			p.h.failf("%s: the state machine at %d receives entries through %d", p.ID, m.index, a.Through)
		}
		for m.index < a.Through {
			m.index++
			isUpdate := len(updates) > 0 && updates[0].Index == m.index
			if isUpdate {
				m.applyUpdate(updates[0])
				updates = updates[1:]
			}
			p.h.checker.checkStateMachine(p)
			if f := p.h.checker.entryAt(m.index); isUpdate != (f.kind == api.KindState && !f.skipped) {
				p.h.failf("%s: the state machine applies entry %d: %t, which is %v, skipped=%t", p.ID, m.index, isUpdate, f.kind, f.skipped)
			}
		}
		if len(updates) > 0 {
			p.h.failf("%s: the state machine at %d receives entry %d", p.ID, m.index, updates[0].Index)
		}
		p.log.Guard(m.index)
		p.core.ReportApplied(m.index)
	}
	for _, r := range a.Replies {
		p.h.clients.handleReply(p, r)
	}
}

// createSnapshot writes a snapshot of the state machine to the disk, which takes some time.
func (p *peer) createSnapshot(t *core.CreateSnapshot) {
	if t.Index != p.stateMachine.index {
		p.h.failf("%s: a snapshot of %d is requested, and the state machine is at %d", p.ID, t.Index, p.stateMachine.index)
	}
	writer, err := snapshot.Create(p.fs, snapDir, snapshot.Meta{
		Cluster: cluster, Index: t.Index, Term: t.Term, Conf: t.Conf, Created: p.Wall(),
	})
	if err == nil {
		_, err = t.View.WriteTo(writer.Tables())
	}
	if err == nil {
		_, err = writer.Data().Write(p.stateMachine.encode())
	}
	if err != nil {
		if writer != nil {
			writer.Abort()
		}
		p.snapshotFailed(err)
		return
	}
	p.scheduleInput(p.h.duration(time.Millisecond, 30*time.Millisecond), func() {
		if t.Index <= p.newest { // a newer snapshot was installed while this one was written
			writer.Abort()
			p.core.ReportSnapshotFailed()
			return
		}
		if err := writer.Commit(); err != nil {
			p.snapshotFailed(err)
			return
		}
		p.newest = t.Index
		raw, _ := p.newestFile()
		p.h.tracef("%s: has created snapshot %d", p.ID, t.Index)
		p.h.checker.counts["snapshots"]++
		p.core.ReportSnapshotCreated(core.Snapshot{Index: t.Index, Term: t.Term, Size: int64(len(raw)), Members: t.Members})
	})
}

// snapshotFailed tells the core that a snapshot could not be created. The previous snapshot and the log
// remain.
func (p *peer) snapshotFailed(err error) {
	p.requireNoError(unexpectedError(err))
	p.h.tracef("%s: has not created a snapshot: %v", p.ID, err)
	p.h.checker.counts["noSnapshots"]++
	p.core.ReportSnapshotFailed()
}
