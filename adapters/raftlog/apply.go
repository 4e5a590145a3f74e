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

// watchedIndex is an index that increases, and that goroutines can wait for.
type watchedIndex struct {
	mu      sync.Mutex
	index   uint64
	changed chan struct{} // closed when index increases
}

func (w *watchedIndex) init() { w.changed = make(chan struct{}) }

// load returns the index, and a channel that is closed when it increases.
func (w *watchedIndex) load() (uint64, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.index, w.changed
}

// advance increases the index to the given one.
func (w *watchedIndex) advance(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index > w.index {
		w.index = index
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// runApplier applies committed entries to the state machine until the node stops.
func (n *Node) runApplier() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.apply.added:
		}
		for _, a := range n.apply.takeAll() {
			if err := n.handleApply(a); err != nil {
				n.stopWithFault(fmt.Errorf("state machine: %w", err))
				return
			}
			if n.ctx.Err() != nil {
				return
			}
		}
	}
}

// handleApply handles a request to the state machine.
func (n *Node) handleApply(a core.Apply) error {
	switch {
	case a.Create != nil:
		return n.createSnapshot(a.Create)
	case a.Restore != 0:
		r, err := n.newestSnapshot()
		if err != nil {
			return err
		}
		defer r.Close()
		// The newest snapshot may be newer than the request; its own request follows.
		if err := n.restoreStateMachine(r); err != nil {
			return err
		}
		n.reportApplied(max(a.Restore, r.Meta().Index), nil)
		return nil
	}
	updates := make([]api.Entry, 0, len(a.Outcomes))
	for _, o := range a.Outcomes {
		if o.Kind == api.KindState && !o.Skipped() && o.Index > n.machineIndex {
			updates = append(updates, o.Entry())
		}
	}
	through := a.Outcomes[len(a.Outcomes)-1].Index
	if through > n.machineIndex {
		if err := n.stateMachine().Apply(updates, through); err != nil {
			return fmt.Errorf("apply entries through %d: %w", through, err)
		}
		n.machineIndex = through
	}
	n.reportApplied(through, a.Outcomes)
	return nil
}

// reportApplied reports the applied index to the loop and to the goroutines that wait for it.
func (n *Node) reportApplied(index uint64, outcomes []replica.Outcome) {
	n.applied.advance(index)
	select {
	case n.calls <- func(c *core.Core) { c.ReportApplied(index, outcomes) }:
	case <-n.ctx.Done():
	}
}

func (n *Node) stateMachine() StateMachine {
	if n.cfg.StateMachine == nil {
		return noStateMachine{}
	}
	return n.cfg.StateMachine
}

// restoreStateMachine restores the state machine from a snapshot, if the snapshot is newer.
func (n *Node) restoreStateMachine(r *snapshot.Reader) error {
	index := r.Meta().Index
	if n.machineIndex < index {
		data := r.Data()
		defer data.Close()
		if r.DataSize() > 0 || index > 1 {
			if err := n.stateMachine().Restore(index, data); err != nil {
				return fmt.Errorf("restore the state of entry %d: %w", index, err)
			}
		}
		n.machineIndex = index
	}
	n.applied.advance(index)
	return nil
}

// closeIfCloser closes v if it implements io.Closer.
func closeIfCloser(v any) error {
	if c, ok := v.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
