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

// askTime limits how long a founding peer waits for the other founding peers.
const askTime = 2 * time.Second

// askFounders connects to the other founding peers before anything is written. A peer that is of
// the cluster already refuses this one if it was founded with another configuration, or if it
// knows another directory of this peer: then the error is ErrIdentity. Peers that cannot be
// reached within askTime are skipped; they refuse this peer later.
func (n *Node) askFounders() error {
	ctx, cancel := context.WithTimeout(n.ctx, askTime)
	defer cancel()
	fatal := make([]error, len(n.cfg.Peers))
	var all sync.WaitGroup
	for i, p := range n.cfg.Peers {
		if p.ID == n.cfg.ID {
			continue
		}
		all.Go(func() {
			l, err := n.contact(ctx, p)
			if err != nil {
				fatal[i] = n.verdict(p.ID, err)
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

// found begins the cluster: all of its first peers write the same snapshot, of entry 1.
func (n *Node) found() (*snapshot.Reader, error) {
	n.owner.Founding = identity.Founding(n.cfg.Cluster, n.cfg.Peers, n.cfg.Window, n.cfg.ElectionTimeout)
	if err := n.askFounders(); err != nil {
		return nil, err
	}
	var voters []entry.Peer
	for _, p := range identity.Sorted(n.cfg.Peers) {
		voters = append(voters, replica.Numbered(n.cfg.Cluster, p))
	}
	tables := replica.New(voters, n.cfg.Window, n.cfg.ElectionTimeout)
	w, err := snapshot.Create(n.fs, ".", snapshot.Meta{
		Cluster: n.cfg.Cluster, Index: 1, Term: 1, Conf: tables.Members.ConfState(), Created: time.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("raftlog: %w", err)
	}
	if _, err := tables.View().WriteTo(w.Tables()); err != nil {
		w.Abort()
		return nil, err
	}
	if err := w.Commit(); err != nil {
		return nil, err
	}
	return snapshot.Open(n.fs, ".")
}
