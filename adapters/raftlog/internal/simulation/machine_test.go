package simulation

// The state machine: it records what it applies.

import (
	"encoding/binary"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// machine has a checksum of all updates in order.
type machine struct {
	index, updates uint64
	chain          uint64
}

func (m *machine) do(o replica.Outcome) {
	m.index = o.Index
	if o.Kind != api.KindState || o.Skipped() {
		return
	}
	m.updates++
	for _, b := range [][]byte{o.ID[:], o.Data} {
		for _, c := range b {
			m.chain = (m.chain ^ uint64(c)) * 1099511628211
		}
	}
}

func (m machine) save() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.index)
	b = binary.BigEndian.AppendUint64(b, m.updates)
	return binary.BigEndian.AppendUint64(b, m.chain)
}

func load(b []byte) machine {
	return machine{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

// applyNow has the state machine do what is next, now or soon. It tells whether there is
// something to take from the core again.
func (p *peer) applyNow() bool {
	if p.applying || len(p.apply) == 0 {
		return false
	}
	if !p.w.calm && p.w.chance(0.3) {
		p.applying = true
		p.later(p.w.span(0, 3*time.Millisecond), func() {
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
		p.takeSnapshot(a.Create)
	case a.Restore != 0:
		m := load(p.restores[a.Restore])
		delete(p.restores, a.Restore)
		if m.index != a.Restore || m.index <= p.machine.index {
			p.w.failf("%s: the state machine, at %d, is restored to %d from a snapshot of %d", p.ID, p.machine.index, a.Restore, m.index)
		}
		p.machine = m
		p.w.truth.applied(p)
		p.core.ReportApplied(m.index, nil)
	default:
		for _, o := range a.Outcomes {
			if o.Index != p.machine.index+1 {
				p.w.failf("%s: the state machine, at %d, gets entry %d", p.ID, p.machine.index, o.Index)
			}
			p.machine.do(o)
			p.w.truth.applied(p)
		}
		if len(a.Outcomes) > 0 {
			p.log.Guard(p.machine.index)
			p.core.ReportApplied(p.machine.index, a.Outcomes)
		}
	}
}

// takeSnapshot writes a snapshot, which takes a while.
func (p *peer) takeSnapshot(t *core.CreateSnapshot) {
	if t.Index != p.machine.index {
		p.w.failf("%s: a snapshot of %d is to be taken, and the state machine is at %d", p.ID, t.Index, p.machine.index)
	}
	writer, err := snapshot.Create(p.fs, snapDir, snapshot.Meta{
		Cluster: cluster, Index: t.Index, Term: t.Term, Conf: t.Conf, Created: p.Wall(),
	})
	if err == nil {
		_, err = t.View.WriteTo(writer.Tables())
	}
	if err == nil {
		_, err = writer.Data().Write(p.machine.save())
	}
	if err != nil {
		if writer != nil {
			writer.Abort()
		}
		p.noSnapshot(err)
		return
	}
	p.later(p.w.span(time.Millisecond, 30*time.Millisecond), func() {
		if t.Index <= p.newest { // another one came first
			writer.Abort()
			p.core.ReportSnapshotFailed()
			return
		}
		if err := writer.Commit(); err != nil {
			p.noSnapshot(err)
			return
		}
		p.newest = t.Index
		raw, _ := p.newestFile()
		p.w.tracef("%s: has taken snapshot %d", p.ID, t.Index)
		p.w.truth.snapshots++
		p.core.ReportSnapshotCreated(core.Snapshot{Index: t.Index, Term: t.Term, Size: int64(len(raw)), Members: t.Members})
	})
}

// noSnapshot goes on with the snapshot before, and the log.
func (p *peer) noSnapshot(err error) {
	p.must(unlessBad(err))
	p.w.tracef("%s: has not taken a snapshot: %v", p.ID, err)
	p.w.truth.noSnapshots++
	p.core.ReportSnapshotFailed()
}
