package simulation

// This file simulates peers whose data does not permit them to participate in the cluster.

import (
	"fmt"
	"path"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// identityState contains the identity of a peer, and the identities of other peers that it knows.
type identityState struct {
	instance      string
	starts        uint64
	known         identity.Registry // the registry that is stored on the disk
	connected     map[string]bool   // the processes with which the current process has completed a handshake
	refusals      identity.Refusals // the refusals of this process by other peers
	mustStop      bool              // whether the peer must stop because of an injected fault
	corrupt       bool              // whether an injected fault has changed the history of the peer
	directoryLost bool              // whether a random fault has removed the directory of the peer
}

// startIdentity gives the peer the identity of a new process.
func (p *peer) startIdentity() {
	p.starts++
	p.connected, p.refusals = map[string]bool{}, identity.Refusals{}
}

// claim returns the claim that the current process sends in handshakes.
func (p *peer) claim() link.Claim {
	return link.Claim{Founding: p.known.Founding, Instance: p.instance, Start: p.starts, Process: fmt.Sprint(p.instance, p.process)}
}

// connect reports whether a frame from one process to another may arrive. Before the first frame, it executes
// the handshake of the two processes. A frame of a process that has ended arrives only if the two processes
// were connected.
func (p *peer) connect(from *peer, claim link.Claim) bool {
	if p.h.trustAll || p.connected[claim.Process] {
		return true
	}
	if !from.up || from.claim() != claim {
		return false
	}
	if !p.checkClaim(from) || !from.checkClaim(p) {
		return false
	}
	p.connected[claim.Process], from.connected[p.claim().Process] = true, true
	return true
}

// checkClaim is the part of a handshake that p executes: it accepts the claim of the other side, or refuses
// the claim and sends the refusal.
func (p *peer) checkClaim(other *peer) bool {
	claim := other.claim()
	_, _, refused := p.known.Meet(other.ID, claim)
	if refused == nil {
		return true
	}
	p.h.schedule(p.h.net.delay, func() {
		if other.up && other.claim() == claim {
			other.handleRefusal(p.ID, refused)
		}
	})
	return false
}

// handleRefusal records that another peer has refused a connection of this process, and stops the peer
// if it must stop.
func (p *peer) handleRefusal(by string, reason *link.RefusedError) {
	established, voters := p.core.Established()
	if p.refusals.Add(by, reason.Reason, p.h.now, established, voters) {
		p.stopPermanently(reason.Error())
	}
}

// stopPermanently stops a peer that must not participate any more, and checks that it must stop.
func (p *peer) stopPermanently(reason string) {
	if !p.mustStop {
		p.h.failf("%s stops without a fault: %s", p.ID, reason)
	}
	p.h.tracef("%s: stops: %s", p.ID, reason)
	p.h.checker.counts["stoppedPeers"]++
	if p.up {
		p.powerOff()
	}
	p.stopped = true
	if p.directoryLost {
		p.h.clients.replacePeer(p)
	}
}

// checkLog checks the log in the same way as raftlog.Open. If the peer must not use the log, checkLog stops the
// peer permanently and returns false.
func (p *peer) checkLog() bool {
	wrong, err := identity.Owner{Instance: p.instance, Complete: true}.CheckLog(p.fs, logDir)
	p.requireNoError(err)
	if wrong == "" || p.h.trustAll {
		return true
	}
	p.stopPermanently(wrong)
	return false
}

// proposeUpdates proposes n updates, one after another.
func (h *harness) proposeUpdates(n int) {
	for range n {
		done := false
		h.clients.proposeUntilKnown(h.newUpdate(h.wallTime()), func() { done = true })
		h.waitFor("an update", recoveryLimit, func() string {
			if !done {
				return "it is not acknowledged"
			}
			return ""
		})
	}
}

// replaceVoter replaces a voter that has stopped permanently by a new peer.
func (h *harness) replaceVoter(p *peer) {
	h.clients.pending++
	h.clients.changing = true
	h.clients.replacePeer(p)
}

// replaceDisk gives the machine of a peer an empty disk.
func (p *peer) replaceDisk() {
	p.interrupted, p.diskFull = nil, false
	p.disk = testenv.NewDisk(p.h.rand.Uint64())
	p.fs = p.diskOf()
}

// loseDirectory gives the machine of a peer an empty disk with a new directory, which has another
// identity.
func (p *peer) loseDirectory() {
	p.mustStop = true
	p.replaceDisk()
	p.known, p.instance, p.starts = identity.Registry{}, fmt.Sprintf("%x", p.h.rand.Uint64()), 0
}

// directoryLost is the scenario in which a voter loses its directory while all peers are down. The
// voter must stop.
func directoryLost(h *harness) {
	h.loseDataWhileAllDown(func(p *peer) {
		p.loseDirectory()
		p.createFounder(p.seeds)
	})
}

// loseVoterDirectory removes the directory of a random voter. The other peers must recognize the new
// directory, and refuse the voter.
func (h *harness) loseVoterDirectory() {
	l := h.leader()
	if h.lostDisk != nil || h.clients.changing || l == nil || !l.observed.ready {
		return
	}
	m := l.core.Replica().Members
	p := h.peerByID(m.Voters[h.rand.IntN(len(m.Voters))].ID)
	if len(m.Voters) < 3 || m.Joint() || p == l {
		return
	}
	// All other peers must know the old directory of the voter, because otherwise they would not
	// recognize that the directory is new.
	for _, q := range h.peers {
		if _, known := q.known.Peers[p.ID]; !known && q != p && !q.stopped || q.stopped && m.IsVoter(q.raft) {
			return
		}
	}
	h.tracef("%s: loses its directory", p.ID)
	h.checker.counts["lostDirectories"]++
	h.clients.pending++
	h.clients.changing = true
	p.crash()
	p.directoryLost = true
	p.loseDirectory()
	if p.isFounder() {
		p.createFounder(p.seeds)
	} else if p.createFromSnapshot(l, p.seeds) { // raftlog.Open also creates the data of a joining peer from a snapshot
		p.stopPermanently("the snapshot contains its vote")
		return
	}
	h.schedule(h.duration(time.Millisecond, 50*time.Millisecond), p.start)
}

// logLost is the scenario in which a voter loses its log, but not the rest of its directory. The voter
// must stop.
func logLost(h *harness) {
	h.loseDataWhileAllDown(func(p *peer) {
		p.removeAll(logDir)
		_, newest := p.newestFile()
		p.durable = durableLog{before: newest.Index, term: newest.Term}
	})
}

func (p *peer) removeAll(dir string) {
	names, err := p.disk.List(dir)
	p.requireNoError(err)
	for _, name := range names {
		name = path.Join(dir, name)
		if f, err := p.disk.OpenRead(name); err == nil {
			p.requireNoError(f.Close())
		} else {
			p.removeAll(name)
		}
		p.requireNoError(p.disk.Remove(name))
	}
}

// loseDataWhileAllDown stops peer x, lets the other two peers acknowledge updates, stops these, and
// calls lose with peer v. Then it starts v and x, so that no running peer remembers what v has
// acknowledged.
func (h *harness) loseDataWhileAllDown(lose func(*peer)) {
	l, v, x := h.leaderAndOthers()
	h.advance(h.now + election)
	x.crash()
	h.proposeUpdates(5)
	l.crash()
	v.crash()
	h.tracef("%s: loses its data", v.ID)
	v.mustStop = true
	lose(v)
	v.start()
	x.start()
	h.advance(h.now + 20*election)
	l.start()
	h.advance(h.now + 5*election)
	if !v.stopped {
		h.failf("%s continues without its data", v.ID)
	}
	h.waitForLeader()
	h.replaceVoter(v)
}

// secondConfiguration is the scenario in which a peer founds a cluster of the same name with another
// configuration, which contains two of the real voters.
func secondConfiguration(h *harness) {
	l, v, x := h.leaderAndOthers()
	d := h.newPeer()
	d.mustStop = true
	d.createFounder([]api.Peer{l.Peer, v.Peer, d.Peer})
	d.start()
	h.advance(h.now + 5*election)
	if d.stopped {
		return
	}
	// First run the majority of one configuration, and then the majority of the other configuration.
	v.crash()
	x.crash()
	h.advance(h.now + 20*election)
	l.crash()
	d.crash()
	v.start()
	x.start()
	h.advance(h.now + 20*election)
}

// historyDiffers is the scenario in which the history of one peer changes, as if the peer had applied
// other entries. The peer must stop.
func historyDiffers(h *harness) {
	l, v, x := h.leaderAndOthers()
	p := []*peer{l, v, x}[h.rand.IntN(3)]
	h.tracef("%s: its history differs from now on", p.ID)
	p.corrupt, p.mustStop = true, true
	p.core.Replica().History ^= 1 << h.rand.IntN(64)
	h.proposeUpdates(1)
	h.advance(h.now + 6*election)
	if !p.stopped {
		h.failf("%s continues with another history", p.ID)
	}
	h.waitForLeader()
	h.replaceVoter(p)
}

// recoverFault recovers from the Fault with which a process panics if its peer must stop, and stops the
// peer. Callers defer it.
func (p *peer) recoverFault() {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(core.Fault)
	if !ok {
		panic(r)
	}
	p.h.checker.counts["diverged"]++
	p.h.schedule(time.Microsecond, func() { p.stopPermanently(fault.Error()) })
	p.paused = true // so that the process receives no more inputs
}
