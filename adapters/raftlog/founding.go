package raftlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// foundersTimeout limits how long checkRefusals waits for the peers in the configuration.
const foundersTimeout = 2 * time.Second

// checkRefusals connects to the peers in the configuration before this peer writes anything. A peer that
// already belongs to the cluster refuses this peer if the cluster was founded with another
// configuration, or if the other peer knows another directory of this peer: then the error is
// ErrIdentity. Peers that cannot be reached within foundersTimeout are skipped; they refuse this peer
// later.
func (n *Node) checkRefusals() error {
	ctx, cancel := context.WithTimeout(n.ctx, foundersTimeout)
	defer cancel()
	fatal := make([]error, len(n.cfg.Peers))
	var all sync.WaitGroup
	for i, p := range n.cfg.Peers {
		if p.ID == n.cfg.ID {
			continue
		}
		all.Go(func() {
			l, err := n.dialPeer(ctx, p)
			if err != nil {
				fatal[i] = n.fatalRefusal(p.ID, err)
				return
			}
			l.Close()
		})
	}
	all.Wait()
	for _, err := range fatal {
		if err != nil {
			return err // the refusal of one peer suffices to make this peer stop
		}
	}
	return nil
}

// setFounding stores in n.owner that this peer founds the cluster with the present configuration.
func (n *Node) setFounding() {
	n.owner.Founding = identity.Founding(n.cfg.Cluster, n.cfg.Peers, n.cfg.Window, n.cfg.ElectionTimeout)
	n.owner.Founders = identity.Founders(n.cfg.Peers, n.cfg.Window, n.cfg.ElectionTimeout)
}

// foundCluster creates the first snapshot of the cluster, up to entry 1. All initial voters create the same
// snapshot.
func (n *Node) foundCluster() (*snapshot.Reader, error) {
	n.setFounding()
	if err := n.checkRefusals(); err != nil {
		return nil, err
	}
	var voters []replica.Peer
	for _, p := range identity.Sorted(n.cfg.Peers) {
		voters = append(voters, replica.Numbered(n.cfg.Cluster, p))
	}
	state := replica.New(voters, n.cfg.Window, n.cfg.ElectionTimeout)
	w, err := writeSnapshotFile(n.fs, n.cfg.Cluster, state.View(), state.Members.ConfState(), noStateMachine{})
	if err != nil {
		return nil, fmt.Errorf("raftlog: %w", err)
	}
	if err := w.Commit(); err != nil {
		return nil, err
	}
	return snapshot.Open(n.fs, ".")
}

// discardUnusedFounding prepares the directory for another founding, and returns true, if this peer has
// founded the cluster with another configuration and has neither voted nor stored an entry since: then no
// cluster of that configuration depends on this peer. index is the index of the newest snapshot, which is 1
// if it is that of the founding. If a peer of an established cluster refuses the present configuration, the
// directory is not changed, because the cluster may have been founded with the configuration in the
// directory, and the present configuration may list peers that joined later.
func (n *Node) discardUnusedFounding(index uint64) (bool, error) {
	if index != 1 || !n.cfg.isFounder() {
		return false, nil
	}
	old := n.owner
	n.setFounding()
	founding := n.owner
	n.owner = old
	if old.Founding == founding.Founding || len(old.Former) > 0 {
		return false, nil
	}
	unused, err := n.isLogUnused()
	if err != nil || !unused {
		return false, err
	}
	n.owner = founding
	refused := n.checkRefusals()
	n.owner = old
	if refused != nil {
		n.log.Warn("this directory was founded with another configuration, and nothing was committed in it",
			"founded", old.Founders, "configuration", founding.Founders, "err", refused)
		return false, nil
	}
	n.log.Warn("founding the cluster again: the configuration has changed, and nothing was committed in this directory",
		"before", old.Founders, "now", founding.Founders)
	// If the process is killed after the next write, it founds the cluster at its next start.
	n.owner.Founding, n.owner.Founders, n.owner.Complete = "", "", false
	err = n.owner.Write(n.fs)
	if err == nil {
		err = identity.WritePeers(n.fs, nil) // forget the peers that this peer has met because of the wrong configuration
	}
	if err != nil {
		return false, fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	return true, nil
}

// isLogUnused reports whether the log contains neither an entry nor a vote.
func (n *Node) isLogUnused() (bool, error) {
	if err := n.checkLog(); err != nil {
		return false, err
	}
	files, err := filelog.Open(n.fs, logDir, filelog.Options{SegmentSize: n.cfg.segment})
	if err != nil {
		return false, fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	last, err := files.LastIndex()
	unused := last <= 1 && files.HardState().GetVote() == 0
	if err = errors.Join(err, files.Close()); err != nil {
		return false, fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	return unused, nil
}
