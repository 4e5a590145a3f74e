package raftlog

import (
	"sync"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// completions passes the results of the writer and the applier to the loop. A result wakes the loop only if
// the loop waits for it. The loop of a follower usually does not wait: the next message of the leader or the
// next tick wakes it anyway.
type completions struct {
	mu      sync.Mutex
	stored  []storedWrite
	applied uint64 // the index that the state machine has applied

	pending       atomic.Bool // stored or applied contains results that report has not passed to the core
	awaitsStored  atomic.Bool
	awaitsApplied atomic.Bool
	added         chan struct{} // contains a token if a result was added for which the loop waits, or an urgent one
}

func newCompletions() *completions { return &completions{added: make(chan struct{}, 1)} }

// addStored adds writes that are durable. If urgent is true, it wakes the loop even if the loop does not wait
// for writes.
func (c *completions) addStored(batch []storedWrite, urgent bool) {
	c.mu.Lock()
	c.stored = append(c.stored, batch...)
	c.pending.Store(true)
	c.mu.Unlock()
	if urgent || c.awaitsStored.Load() {
		signal(c.added)
	}
}

// addApplied sets the index that the state machine has applied, unless it is less than before.
func (c *completions) addApplied(index uint64) {
	c.mu.Lock()
	c.applied = max(c.applied, index)
	c.pending.Store(true)
	c.mu.Unlock()
	if c.awaitsApplied.Load() {
		signal(c.added)
	}
}

// wakeOn sets whether stored writes, and whether a greater applied index, wake the loop. If one of them does,
// results that were added before the call wake the loop as well.
func (c *completions) wakeOn(stored, applied bool) {
	c.awaitsStored.Store(stored)
	c.awaitsApplied.Store(applied)
	if (stored || applied) && c.pending.Load() {
		signal(c.added)
	}
}

// report passes the stored writes and the applied index to the core, and removes the writes.
func (c *completions) report(to *core.Core) {
	if !c.pending.Load() {
		return
	}
	c.mu.Lock()
	stored, applied := c.stored, c.applied
	c.stored = nil
	c.pending.Store(false)
	c.mu.Unlock()
	for _, s := range stored {
		to.ReportStored(s.write, s.installed)
	}
	to.ReportApplied(applied)
}
