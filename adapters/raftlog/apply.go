package raftlog

import (
	"fmt"
	"io"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// progress is an index that grows, and that others wait for.
type progress struct {
	mu    sync.Mutex
	index uint64
	grown chan struct{} // closed when index grows
}

func (p *progress) init() { p.grown = make(chan struct{}) }

// now is the index, and what is closed when it has grown.
func (p *progress) now() (uint64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.index, p.grown
}

func (p *progress) set(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if index > p.index {
		p.index = index
		close(p.grown)
		p.grown = make(chan struct{})
	}
}

// applyAll has the state machine apply what is committed.
func (n *Node) applyAll() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.apply.wake:
		}
		for _, a := range n.apply.take() {
			if err := n.applyOne(a); err != nil {
				n.fail(fmt.Errorf("state machine: %w", err))
				return
			}
			if n.ctx.Err() != nil {
				return
			}
		}
	}
}

func (n *Node) applyOne(a core.Apply) error {
	switch {
	case a.Create != nil:
		return n.takeSnapshot(a.Create)
	case a.Restore != 0:
		r, err := n.newest()
		if err != nil {
			return err
		}
		defer r.Close()
		// A still newer one may be there already; its own Restore follows.
		if err := n.restore(r); err != nil {
			return err
		}
		return n.tellApplied(max(a.Restore, r.Meta().Index), nil)
	}
	updates := make([]api.Entry, 0, len(a.Outcomes))
	for _, o := range a.Outcomes {
		if o.Kind == api.KindState && !o.Skipped() && o.Index > n.has {
			updates = append(updates, o.Entry())
		}
	}
	through := a.Outcomes[len(a.Outcomes)-1].Index
	if through > n.has {
		if err := n.machine().Apply(updates, through); err != nil {
			return fmt.Errorf("apply entries through %d: %w", through, err)
		}
		n.has = through
	}
	return n.tellApplied(through, a.Outcomes)
}

// tellApplied tells the loop, and whoever waits.
func (n *Node) tellApplied(index uint64, outcomes []replica.Outcome) error {
	n.applied.set(index)
	select {
	case n.calls <- func(c *core.Core) { c.ReportApplied(index, outcomes) }:
	case <-n.ctx.Done():
	}
	return nil
}

func (n *Node) machine() StateMachine {
	if n.cfg.StateMachine == nil {
		return nothing{}
	}
	return n.cfg.StateMachine
}

// restore gives the state machine a snapshot, if it is behind.
func (n *Node) restore(r *snapshot.Reader) error {
	index := r.Meta().Index
	if n.has < index {
		data := r.Data()
		defer data.Close()
		if r.DataSize() > 0 || index > 1 {
			if err := n.machine().Restore(index, data); err != nil {
				return fmt.Errorf("restore the state of entry %d: %w", index, err)
			}
		}
		n.has = index
	}
	n.applied.set(index)
	return nil
}

// closeIt closes what can be closed.
func closeIt(v any) error {
	if c, ok := v.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
