package raftlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// foundersTimeout limits how long a founding peer waits for the other founding peers.
const foundersTimeout = 2 * time.Second

// checkFounders connects to the other founding peers before anything is written. A peer that already
// belongs to the cluster refuses this peer if it was founded with another configuration, or if it
// knows another directory of this peer: then the error is ErrIdentity. Peers that cannot be
// reached within foundersTimeout are skipped; they refuse this peer later.
func (n *Node) checkFounders() error {
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
			return err // the first error suffices
		}
	}
	return nil
}

// foundCluster creates the first snapshot of the cluster, of entry 1. All founding peers create the
// same.
func (n *Node) foundCluster() (*snapshot.Reader, error) {
	n.owner.Founding = identity.Founding(n.cfg.Cluster, n.cfg.Peers, n.cfg.Window, n.cfg.ElectionTimeout)
	if err := n.checkFounders(); err != nil {
		return nil, err
	}
	var voters []entry.Peer
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
