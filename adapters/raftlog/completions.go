package raftlog

import (
	"sync"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// completions passes the results of the writer and the applier to the loop. They wake the loop only
// if it waits for them: on a peer that follows, the next message of the leader wakes it anyway, and
// without one the next tick does.
type completions struct {
	mu      sync.Mutex
	stored  []storedWrite
	applied []appliedEntries

	pending       atomic.Bool // stored or applied contains results
	awaitsStored  atomic.Bool
	awaitsApplied atomic.Bool
	added         chan struct{} // contains a token if the loop waits for a result
}

// appliedEntries contains the outcomes of a batch that the state machine has applied, and its last index.
type appliedEntries struct {
	index    uint64
	outcomes []replica.Outcome
}

func newCompletions() *completions { return &completions{added: make(chan struct{}, 1)} }

// addStored adds writes that are durable. If urgent is true, it wakes the loop.
func (c *completions) addStored(batch []storedWrite, urgent bool) {
	c.mu.Lock()
	c.stored = append(c.stored, batch...)
	c.pending.Store(true)
	c.mu.Unlock()
	if urgent || c.awaitsStored.Load() {
		signal(c.added)
	}
}

// addApplied adds entries that the state machine has applied.
func (c *completions) addApplied(index uint64, outcomes []replica.Outcome) {
	c.mu.Lock()
	c.applied = append(c.applied, appliedEntries{index, outcomes})
	c.pending.Store(true)
	c.mu.Unlock()
	if c.awaitsApplied.Load() {
		signal(c.added)
	}
}

// await sets the results that wake the loop. Results that were added before wake it as well.
func (c *completions) await(stored, applied bool) {
	c.awaitsStored.Store(stored)
	c.awaitsApplied.Store(applied)
	if (stored || applied) && c.pending.Load() {
		signal(c.added)
	}
}

// report passes the stored writes and the applied entries to the core, and removes them.
func (c *completions) report(to *core.Core) {
	if !c.pending.Load() {
		return
	}
	c.mu.Lock()
	stored, applied := c.stored, c.applied
	c.stored, c.applied = nil, nil
	c.pending.Store(false)
	c.mu.Unlock()
	for _, s := range stored {
		to.ReportStored(s.write, s.installed)
	}
	for _, a := range applied {
		to.ReportApplied(a.index, a.outcomes)
	}
}
