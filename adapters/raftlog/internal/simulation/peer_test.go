package simulation

// One peer: its machine, and the process on it that the core is.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// peer is a machine. What is below process is that of the process that runs on it.
type peer struct {
	api.Peer
	clock
	w      *world
	num    int
	raft   uint64
	seeds  []api.Peer
	disk   *crashdisk.Disk
	fs     disk.FS
	stored durable      // what the log must be after a crash
	begun  []*core.Write // what was given to the disk besides, when the power failed
	slow   time.Duration
	maxIDs int
	isFull bool // the disk
	stalls bool // the disk
	waits  bool // work waits for space on the disk
	gone   bool // for ever
	life        // which directory and which process it has
	guest  bool // it is to have no vote

	up      bool
	process int
	paused  bool
	inbox   []func()

	core     *core.Core
	log      *filelog.Log
	appender *filelog.Appender
	work     []*core.Write // for the disk
	writing  []*core.Write // of work, the first ones
	apply    []core.Apply
	applying bool
	machine  machine
	newest   uint64            // the newest snapshot
	received map[uint64][]byte // snapshots, not installed yet
	restores map[uint64][]byte // the state machine's data of those installed
	stands   map[string]string // candidates of this process, by election
	told     map[string]time.Duration
	said     published
}

// newPeer makes a machine with an empty disk.
func (w *world) newPeer() *peer {
	id := fmt.Sprint("p", w.next)
	p := &peer{
		Peer: api.Peer{ID: id, Addr: id + ":1"}, clock: newClock(w), w: w, num: w.next, raft: replica.RaftID(cluster, id),
		disk: crashdisk.New(rand.New(rand.NewPCG(w.Uint64(), 1))),
	}
	p.instance = fmt.Sprintf("%x", w.Uint64())
	if w.maxIDs > 0 {
		p.maxIDs = w.maxIDs + w.IntN(w.maxIDs) // each has its own, for only the leader looks at it
	}
	w.next++
	w.peers = append(w.peers, p)
	p.fs = p.mount()
	return p
}

func (p *peer) mount() disk.FS {
	if !p.w.fsync {
		return liar{p.disk}
	}
	return p.disk
}

// start starts a process from what the disk has.
func (p *peer) start() {
	if p.up || p.gone {
		return
	}
	w := p.w
	p.process++
	p.begins()
	if !p.hasLog() {
		return
	}
	p.up, p.paused, p.inbox = true, false, nil
	p.work, p.writing, p.apply, p.applying, p.waits = nil, nil, nil, false, false
	p.received, p.restores = map[uint64][]byte{}, map[uint64][]byte{}
	p.stands, p.told, p.said = map[string]string{}, map[string]time.Duration{}, published{}
	tables, snap, err := p.open()
	if err != nil {
		w.tracef("%s: does not start: %v", p.ID, err)
		w.truth.noStart++
		p.up, p.log = false, nil
		w.after(w.span(10*time.Millisecond, 500*time.Millisecond), p.start)
		return
	}
	tables.Disabled = w.disabled
	if l := w.leader(); p.guest && l != nil { // whoever starts it knows the peers of now
		p.seeds = l.core.Replica().Members.Membership().Voters
	}
	c, err := core.New(core.Config{
		Cluster: cluster, Self: p.Peer, Seeds: p.seeds, Tick: tick, Heartbeat: heartbeat, Election: election,
		Window: w.window, MaxIDs: p.maxIDs, MaxData: maxData, Clock: &p.clock, Instances: p.known.Instances, Random: w.Uint64, Logger: slog.New(p.handler()),
		Log: p.log, Replica: tables, Snapshot: snap, Disabled: w.disabled,
	})
	if err != nil {
		w.failf("%s: start: %v", p.ID, err)
	}
	p.core = c
	w.tracef("%s: starts as process %d, snapshot %d", p.ID, p.process, snap.Index)
	for i := range w.elected {
		p.stand(fmt.Sprint("e", i))
	}
	p.later(w.span(0, tick), p.tick)
	p.drain()
}

// tick is called every Tick.
func (p *peer) tick() {
	if p.lookForSpace(); !p.up {
		return
	}
	p.core.Advance()
	p.later(tick+p.w.span(0, tick/10), p.tick)
}

// input gives the process something, now or when it goes on.
func (p *peer) input(f func()) {
	if p.corrupt {
		defer p.faults()
	}
	switch {
	case !p.up:
	case p.paused:
		p.inbox = append(p.inbox, f)
	default:
		p.core.SetFreeSpace(p.appender.Room(), p.waits)
		f()
		if p.up && !p.w.chance(0.05) { // else with the next input
			p.drain()
		}
	}
}

// later gives the process of now something later, if it is still there.
func (p *peer) later(d time.Duration, f func()) {
	process := p.process
	p.w.after(d, func() {
		if p.process == process {
			p.input(f)
		}
	})
}

// pause stops the process for a while, of which it knows nothing.
func (p *peer) pause(d time.Duration) {
	if !p.up || p.paused {
		return
	}
	p.w.tracef("%s: pauses for %v", p.ID, d)
	p.paused = true
	process := p.process
	p.w.after(d, func() {
		if p.process == process {
			p.resume()
		}
	})
}

func (p *peer) resume() {
	if !p.up || !p.paused {
		return
	}
	p.w.tracef("%s: goes on, with %d inputs", p.ID, len(p.inbox))
	p.paused = false
	inbox := p.inbox
	p.inbox = nil
	each := p.w.chance(0.5)
	for _, f := range inbox {
		f()
		if each && p.up {
			p.drain()
		}
		if !p.up { // it is at an end
			return
		}
	}
	p.drain()
}

func (p *peer) receive(from string, frame []byte) {
	if err := p.core.Receive(from, frame); err != nil {
		p.w.failf("%s: from %s: %v", p.ID, from, err)
	}
}

// drain carries out what the core says.
func (p *peer) drain() {
	w := p.w
	for {
		out := p.core.TakeOutput()
		if out.LostLog != nil {
			if !p.isWiped() {
				w.failf("%s: %v", p.ID, out.LostLog)
			}
			w.refused(p, out.LostLog)
			return
		}
		for _, instances := range out.Instances {
			delete(instances, p.ID)
			p.known.Learn(instances)
		}
		p.work = append(p.work, out.Writes...)
		p.publish(out)
		for _, s := range out.Frames {
			w.send(p, s.To, s.Data)
		}
		for _, s := range out.Snapshots {
			w.sendSnapshot(p, s.To, s.Index, s.Frame)
		}
		for _, a := range out.Apply {
			w.truth.committed(p, a.Outcomes)
		}
		p.apply = append(p.apply, out.Apply...)
		p.flush()
		for _, r := range out.Replies {
			w.users.reply(p, r)
		}
		if !p.applyNow() {
			return
		}
	}
}

// handler writes the engine's and the core's log into the trace.
func (p *peer) handler() slog.Handler {
	if p.w.say == nil {
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
	for _, q := range t.p.w.peers {
		line = strings.ReplaceAll(line, fmt.Sprintf("%x", q.raft), q.ID)
	}
	t.p.w.tracef("%s:     %s", t.p.ID, line)
	return len(b), nil
}
