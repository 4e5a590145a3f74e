package raftlog

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// watchedIndex is an index that only increases. Goroutines can wait until it does.
type watchedIndex struct {
	mu      sync.Mutex
	index   uint64
	changed chan struct{} // closed when index increases; nil if no goroutine waits for this
}

// load returns the index, and a channel that is closed when it increases.
func (w *watchedIndex) load() (uint64, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.index, w.changed
}

// advance sets the index to the given index, if that is greater, and wakes the goroutines that wait.
func (w *watchedIndex) advance(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index > w.index {
		w.index = index
		if w.changed != nil {
			close(w.changed)
			w.changed = nil
		}
	}
}

// runApplier applies committed entries to the state machine until the node stops. It replies directly to the
// callers in this process that wait for these entries, so that they do not wait for the loop.
func (n *Node) runApplier() {
	defer func() { n.failReplies(n.apply.takeAll()) }() // failWaiting does the same for tasks that the loop adds later
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.apply.added:
		}
		tasks := n.apply.takeAll()
		for i, t := range tasks {
			if err := n.handleApply(t.Apply); err != nil {
				n.stopWithFault(fmt.Errorf("state machine: %w", err))
			}
			if n.ctx.Err() != nil {
				n.failReplies(tasks[i:])
				return
			}
			for _, r := range t.replies {
				r.to <- r.reply
			}
		}
	}
}

// applyTask is a request to the state machine, with the replies to the callers that wait for it.
type applyTask struct {
	core.Apply
	replies []pendingReply
}

// pendingReply is a reply and the channel of its caller, which has a capacity of one.
type pendingReply struct {
	to    chan core.Reply
	reply core.Reply
}

// failReplies replies to the callers that wait for tasks which the state machine may not have completed.
func (n *Node) failReplies(tasks []applyTask) {
	for _, t := range tasks {
		for _, r := range t.replies {
			r.to <- core.Reply{Err: fmt.Errorf("%w: %w", api.ErrUnknownOutcome, context.Cause(n.ctx))}
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
		// r may be newer than the snapshot that the loop has requested; the loop then requests the
		// restoration of the newer snapshot later, which does nothing.
		if err := n.restoreStateMachine(r); err != nil {
			return err
		}
		n.reportApplied(max(a.Restore, r.Meta().Index))
		return nil
	}
	if a.Through > n.machineIndex {
		updates := a.Updates
		for len(updates) > 0 && updates[0].Index <= n.machineIndex {
			updates = updates[1:]
		}
		if err := n.stateMachine().Apply(updates, a.Through); err != nil {
			return fmt.Errorf("apply entries through %d: %w", a.Through, err)
		}
		n.machineIndex = a.Through
	}
	n.reportApplied(a.Through)
	return nil
}

// reportApplied reports the applied index to the loop and to the goroutines that wait for it.
func (n *Node) reportApplied(index uint64) {
	n.applied.advance(index)
	n.completed.addApplied(index)
}

func (n *Node) stateMachine() StateMachine {
	if n.cfg.StateMachine == nil {
		return noStateMachine{}
	}
	return n.cfg.StateMachine
}

// restoreStateMachine restores the state machine from a snapshot, if the snapshot is newer than the state of
// the machine.
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
