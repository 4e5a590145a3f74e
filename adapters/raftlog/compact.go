package raftlog

import (
	"context"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// Compact writes a snapshot of the state machine that replaces the previous snapshot, which
// is kept under another name. Then it truncates the log up to min(snapshot index, prune
// index), where the prune index precedes the first entry whose ID is within the
// deduplication window, so that joining peers receive the entries of all such IDs. No file
// is deleted; [Node.PrunableFiles] returns the files that may be deleted.
//
// Compact blocks until the snapshot is on disk and the log is truncated, and returns the
// index of the snapshot. If ctx is done first, the work continues in the background. If a
// newer snapshot arrives first, from the leader or from Config.CompactFile, it is used
// instead. If the state machine's WriteTo or the disk fails, Compact returns that error
// unchanged, and the previous snapshot remains. The error wraps [api.ErrTooLarge] if the
// elections and members, which every peer reads into memory, need more than 256 MiB.
func (n *Node) Compact(ctx context.Context) (index uint64, err error) {
	w := &compactionWaiter{done: make(chan error, 1)}
	if err := n.callLoop(ctx, func(c *core.Core) {
		w.index = c.Replica().Index
		n.loop.compactions = append(n.loop.compactions, w)
		c.RequestSnapshot()
	}); err != nil {
		return 0, err
	}
	select {
	case err := <-w.done:
		return w.index, err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-n.ctx.Done():
		return 0, context.Cause(n.ctx)
	}
}

// compactionWaiter is a call of Compact that waits for its snapshot. The loop owns it until it sends the
// result to done.
type compactionWaiter struct {
	index   uint64 // the index of the snapshot; before the snapshot is written, the smallest index that the call accepts
	written bool
	through uint64 // the index up to which the log will be truncated; 0 if it does not change
	done    chan error
}

// reportSnapshot reports a snapshot up to index, or the error of writing it, to the calls of Compact that
// requested this snapshot or an earlier one. The log will be truncated up to the index through, or not at all
// if through is 0.
func (l *loopState) reportSnapshot(index, through uint64, err error) {
	kept := l.compactions[:0]
	for _, w := range l.compactions {
		switch {
		case w.written || w.index > index:
		case err != nil:
			w.done <- err
			continue
		default:
			w.index, w.through, w.written = index, through, true
		}
		kept = append(kept, w)
	}
	l.compactions = kept
}

// completeCompactions makes the calls of Compact return whose snapshot is written, after the log was
// truncated. If a newer snapshot was installed before the snapshot of a call was written, the log starts
// after the newer snapshot.
func (l *loopState) completeCompactions() {
	status := l.c.Status()
	l.compactions = slices.DeleteFunc(l.compactions, func(w *compactionWaiter) bool {
		if !w.written && w.index < status.Snapshot.Index {
			w.index, w.written = status.Snapshot.Index, true
		}
		complete := w.written && w.through < status.First
		if complete {
			w.done <- nil
		}
		return complete
	})
}

// PrunableFiles returns the paths, relative to Config.Dir, of the files of the log that contain only
// truncated entries. They may be moved or deleted.
func (n *Node) PrunableFiles() []string {
	return n.files.Prunable(n.publishedStatus().First - 1)
}
