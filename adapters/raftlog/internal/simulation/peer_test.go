package simulation

// This file simulates a peer: its machine, and the process on the machine, which runs the core.

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// peer is a peer with its machine. The fields from process on belong to the process that runs on the machine.
type peer struct {
	api.Peer
	clock
	h               *harness
	number          int
	raft            uint64
	seeds           []api.Peer
	disk            *testenv.Disk
	fs              disk.FS
	durable         durableLog    // the content that the log must have after a crash
	interrupted     []*core.Write // the Writes that were in flight when the power failed
	diskDelay       time.Duration
	maxIDs          int
	diskFull        bool // whether no write completes because the disk is full
	diskStalled     bool // whether no write completes because the disk does not respond
	waitingForSpace bool // whether Writes wait for space on the disk
	stopped         bool // whether the peer was stopped permanently
	identityState        // the peer's identity, and the identities that it knows
	learner         bool // whether the peer is a learner that must not become a voter

	up      bool
	process int
	paused  bool
	inbox   []func()

	core         *core.Core
	log          *filelog.Log
	appender     *filelog.Appender
	writes       []*core.Write     // the Writes in flight, in the order of the core's output
	writing      []*core.Write     // the first Writes of writes, which the disk has started
	outcomes     []replica.Outcome // the outcomes that the checker has not checked yet
	apply        []core.Apply
	applying     bool
	stateMachine stateMachine
	newest       uint64            // the index of the newest snapshot
	received     map[uint64][]byte // the received snapshots that are not installed yet, by index
	restores     map[uint64][]byte // the data of installed snapshots, by index
	candidates   map[string]string // the IDs of the candidates of this process, by election
	observed     observation
}

// newPeer adds a peer whose machine has an empty disk. It does not start the peer.
func (h *harness) newPeer() *peer {
	id := fmt.Sprint("p", h.nextPeer)
	p := &peer{
		Peer: api.Peer{ID: id, Addr: id + ":1"}, clock: newClock(h), h: h, number: h.nextPeer, raft: replica.RaftID(cluster, id),
		disk: testenv.NewDisk(h.rand.Uint64()),
	}
	p.instance = fmt.Sprintf("%x", h.rand.Uint64())
	if h.maxIDs > 0 {
		p.maxIDs = h.maxIDs + h.rand.IntN(h.maxIDs) // the limits differ, because a leader applies only its own limit
	}
	h.nextPeer++
	h.peers = append(h.peers, p)
	p.fs = p.diskOf()
	return p
}

func (p *peer) diskOf() disk.FS {
	if !p.h.syncs {
		return unsyncedDisk{p.disk}
	}
	return p.disk
}

// start starts a process with the data on the disk of the machine.
func (p *peer) start() {
	if p.up || p.stopped {
		return
	}
	h := p.h
	p.process++
	p.startIdentity()
	if !p.checkLog() {
		return
	}
	p.up, p.paused, p.inbox = true, false, nil
	p.writes, p.writing, p.apply, p.applying, p.waitingForSpace = nil, nil, nil, false, false
	p.received, p.restores = map[uint64][]byte{}, map[uint64][]byte{}
	p.candidates, p.observed = map[string]string{}, observation{}
	tables, snap, err := p.openDisk()
	if err != nil {
		h.tracef("%s: cannot start: %v", p.ID, err)
		h.checker.counts["noStart"]++
		p.up, p.log = false, nil
		h.schedule(h.duration(10*time.Millisecond, 500*time.Millisecond), p.start)
		return
	}
	tables.Disabled = h.disabled
	if l := h.leader(); p.learner && l != nil { // configure the current voters, as an operator would
		p.seeds = l.core.Replica().Members.Membership().Voters
	}
	p.outcomes = nil
	c, err := core.New(core.Config{
		Cluster: cluster, Self: p.Peer, Seeds: p.seeds, Tick: tick, Heartbeat: heartbeat, Election: election,
		Window: h.window, MaxIDs: p.maxIDs, MaxData: maxData, Clock: &p.clock, Instances: p.known.Instances, Random: h.rand.Uint64, Logger: slog.New(p.logHandler()),
		Log: p.log, Replica: tables, Snapshot: snap, Disabled: h.disabled,
		Observe: func(o replica.Outcome) { p.outcomes = append(p.outcomes, o) },
	})
	if err != nil {
		h.failf("%s: start: %v", p.ID, err)
	}
	p.core = c
	h.tracef("%s: starts as process %d, snapshot %d", p.ID, p.process, snap.Index)
	for i := range h.elections {
		p.joinElection(fmt.Sprint("e", i))
	}
	p.scheduleInput(h.duration(0, tick), p.advanceCore)
	p.handleOutput()
}

// advanceCore calls Advance of the core. It is called about once in each tick.
func (p *peer) advanceCore() {
	if p.reserveSpace(); !p.up {
		return
	}
	p.core.Advance()
	p.scheduleInput(tick+p.h.duration(0, tick/10), p.advanceCore)
}

// runInput calls f, which gives an input to the core: now, or when a paused process continues.
func (p *peer) runInput(f func()) {
	if p.corrupt {
		defer p.recoverFault()
	}
	switch {
	case !p.up:
	case p.paused:
		p.inbox = append(p.inbox, f)
	default:
		p.core.SetFreeSpace(p.appender.FreeSpace(), p.waitingForSpace)
		f()
		if p.up && !p.h.randomBool(0.05) { // sometimes handle the output only after the next input
			p.handleOutput()
		}
	}
}

// scheduleInput calls f, which gives an input to the core, after d, if the same process still runs
// then.
func (p *peer) scheduleInput(d time.Duration, f func()) {
	process := p.process
	p.h.schedule(d, func() {
		if p.process == process {
			p.runInput(f)
		}
	})
}

// pause stops the process for the time d without notifying it.
func (p *peer) pause(d time.Duration) {
	if !p.up || p.paused {
		return
	}
	p.h.tracef("%s: pauses for %v", p.ID, d)
	p.paused = true
	process := p.process
	p.h.schedule(d, func() {
		if p.process == process {
			p.resumeProcess()
		}
	})
}

func (p *peer) resumeProcess() {
	if !p.up || !p.paused {
		return
	}
	p.h.tracef("%s: continues, with %d inputs", p.ID, len(p.inbox))
	p.paused = false
	inbox := p.inbox
	p.inbox = nil
	each := p.h.randomBool(0.5)
	for _, f := range inbox {
		f()
		if each && p.up {
			p.handleOutput()
		}
		if !p.up { // this input, or the handling of its output, has stopped the process
			return
		}
	}
	p.handleOutput()
}

func (p *peer) receive(from string, frame []byte) {
	if err := p.core.Receive(from, frame); err != nil {
		p.h.failf("%s: from %s: %v", p.ID, from, err)
	}
}

// handleOutput takes the output of the core, and sends, writes and applies what it contains.
func (p *peer) handleOutput() {
	h := p.h
	for {
		out := p.core.TakeOutput()
		if out.LostLog != nil {
			if !p.hasLostDisk() {
				h.failf("%s: %v", p.ID, out.LostLog)
			}
			h.stopLostDisk(p, out.LostLog)
			return
		}
		for _, instances := range out.Instances {
			delete(instances, p.ID)
			p.known.Learn(instances)
		}
		p.writes = append(p.writes, out.Writes...)
		p.observe(out)
		for _, s := range out.Frames {
			h.send(p, s.To, s.Data)
		}
		for _, s := range out.Snapshots {
			h.sendSnapshot(p, s.To, s.Index, s.Frame)
		}
		h.checker.checkCommitted(p, p.outcomes)
		p.outcomes = nil
		p.apply = append(p.apply, out.Apply...)
		p.startWrite()
		for _, r := range out.Replies {
			h.clients.handleReply(p, r)
		}
		if !p.applyNow() {
			return
		}
	}
}

// logHandler returns a handler that writes the log messages of the core and of the engine to the trace.
func (p *peer) logHandler() slog.Handler {
	if p.h.trace == nil {
		return slog.DiscardHandler
	}
	return slog.NewTextHandler(traceWriter{p}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
}

type traceWriter struct{ p *peer }

func (t traceWriter) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	for _, q := range t.p.h.peers {
		line = strings.ReplaceAll(line, fmt.Sprintf("%x", q.raft), q.ID)
	}
	t.p.h.tracef("%s:     %s", t.p.ID, line)
	return len(b), nil
}
