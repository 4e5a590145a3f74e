package raftlog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// writeTask is a write that the core requests, for runWriter.
type writeTask struct {
	write  *core.Write
	staged string // the name of the staged snapshot that the write installs
}

// storedWrite is a write that is durable, with the snapshot that it has installed.
type storedWrite struct {
	write     *core.Write
	installed *core.Installed // the snapshot of the write, or nil
}

// runWriter writes the log. It combines all pending tasks to one write and one sync. The first
// error stops the node, because the contents of a disk are unknown after a sync has failed. A full
// disk is an exception, because it rejects a write before anything is written.
func (n *Node) runWriter() {
	w := &writer{n: n, log: filelog.NewAppender(n.files)}
	defer func() {
		if errors.Is(n.Err(), api.ErrFault) {
			return
		}
		if err := w.finish(); err != nil {
			n.log.Error("writing the commit index failed", "err", err)
		}
	}()
	var retry <-chan time.Time // receives when it is time to try to allocate space again; nil unless the disk has no space
	for {
		var err error
		select {
		case <-n.ctx.Done():
			return
		case <-n.writes.added:
		case <-retry:
			retry = nil
			if err = w.log.Reserve(); errors.Is(err, filelog.ErrNoSpace) {
				err = nil
			}
		}
		if w.tasks = append(w.tasks, n.writes.takeAll()...); err == nil {
			err = w.writeAll()
		}
		full := errors.Is(err, filelog.ErrNoSpace)
		if full {
			err = w.writeWithoutSpace()
		}
		if n.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.stopWithFault(fmt.Errorf("write the log: %w", err))
			return
		}
		if w.reportSpace(full); retry == nil && w.limited {
			retry = time.After(spaceRetryInterval)
		}
	}
}

// spaceRetryInterval is the interval at which the writer tries to allocate space on a full disk.
const spaceRetryInterval = 500 * time.Millisecond

// writer is the state of the goroutine that writes the log.
type writer struct {
	n        *Node
	log      *filelog.Appender
	tasks    []writeTask // tasks that are not complete, in order
	examined int         // the number of tasks that writeWithoutSpace has handled

	limited bool // the disk has no space for another segment
}

// writeAll completes all tasks. After filelog.ErrNoSpace the tasks that need space remain.
func (w *writer) writeAll() error {
	for len(w.tasks) > 0 {
		batch, err := w.writeBatch(w.tasks)
		if errors.Is(err, filelog.ErrNoSpace) && len(batch) > 1 {
			batch, err = w.writeBatch(w.tasks[:1]) // write the first task alone, which may fit
		}
		if err != nil {
			return err
		}
		w.complete(batch)
	}
	w.tasks = nil
	return nil
}

// finish writes what the writer has deferred, such as the newest commit index, before the log is closed.
// First it appends the hard states of the remaining tasks before the first task that must not be deferred
// (core.Write.CanWait).
func (w *writer) finish() error {
	for _, t := range append(w.tasks, w.n.writes.takeAll()...) {
		if !t.write.CanWait() {
			break
		}
		if err := w.log.Append(filelog.Batch{HardState: t.write.HardState}); err != nil {
			return err
		}
	}
	return w.log.Finish()
}

// writeBatch writes as many of the first tasks as can be written together. It returns these tasks even if
// writing them has failed.
func (w *writer) writeBatch(tasks []writeTask) (batch []storedWrite, err error) {
	count, data := nextBatch(tasks)
	for _, t := range tasks[:count] {
		batch = append(batch, storedWrite{write: t.write})
	}
	switch t := tasks[0]; {
	case t.write.Snapshot != nil:
		batch[0].installed, err = w.n.installSnapshot(w.log, t, data)
	case t.write.Compact != 0:
		if err = w.log.Append(data); err == nil {
			err = w.log.Compact(t.write.Compact)
		}
	default:
		err = w.log.Append(data)
	}
	return batch, err
}

// complete removes the tasks of a durable batch, sends their frames, and passes the batch to the loop.
func (w *writer) complete(batch []storedWrite) {
	// Send these frames before the loop handles the result, because other peers wait for them.
	urgent := false
	for _, s := range batch {
		w.sendFrames(s.write.Frames)
		s.write.Sent = true
		urgent = urgent || s.write.Snapshot != nil || s.write.Compact != 0
	}
	w.tasks = w.tasks[len(batch):]
	w.examined = max(0, w.examined-len(batch))
	w.n.completed.addStored(batch, urgent)
}

func (w *writer) sendFrames(frames []core.Frame) {
	for _, s := range frames {
		w.n.net.Send(s.To, s.Urgent, s.Data)
	}
}

// writeWithoutSpace handles the parts of the remaining tasks that need not wait for space: votes, and
// compactions, which can free space.
func (w *writer) writeWithoutSpace() error {
	for w.examined < len(w.tasks) {
		work := w.tasks[w.examined].write
		votes, err := work.TakeVotes(func(hs *raftpb.HardState) error {
			return w.log.Append(filelog.Batch{HardState: hs, Sync: true})
		})
		w.sendFrames(votes)
		if err == nil && work.Compact != 0 && w.examined > 0 {
			if err = w.log.Compact(work.Compact); err == nil {
				w.tasks = slices.Delete(w.tasks, w.examined, w.examined+1)
				w.examined--
				w.n.completed.addStored([]storedWrite{{write: work}}, true)
			}
		}
		if errors.Is(err, filelog.ErrNoSpace) { // the disk has no space even for votes
			return nil
		}
		if err != nil {
			return err
		}
		w.examined++
	}
	return nil
}

// reportSpace publishes the free space on the disk to the loop, and logs when it becomes limited or sufficient.
func (w *writer) reportSpace(full bool) {
	n := w.n
	free := w.log.FreeSpace()
	n.freeSpace.Store(free)
	n.full.Store(full)
	if limited := free != math.MaxInt64; limited != w.limited {
		w.limited = limited
		if limited {
			n.log.Warn("no disk space for the next segment of the log: updates are rejected when the current segment is full", "free", max(0, free))
		} else {
			n.log.Info("disk space for the log is available again")
		}
	}
}

// maxBatchBytes is the maximum size of the entries of several tasks that are written together. The log rejects
// a batch of more than 1 GiB.
const maxBatchBytes = 64 << 20

// nextBatch returns the number of tasks that can be written together, and their data. A task that installs a
// snapshot or compacts the log forms a separate batch.
func nextBatch(tasks []writeTask) (int, filelog.Batch) {
	var b filelog.Batch
	size := 0
	for i, t := range tasks {
		w := t.write
		for _, e := range w.Entries {
			size += len(e.GetData())
		}
		separate := w.Snapshot != nil || w.Compact != 0
		if i > 0 && (separate || size > maxBatchBytes || len(b.Entries) > 0 && len(w.Entries) > 0 && w.Entries[0].GetIndex() != b.Entries[len(b.Entries)-1].GetIndex()+1) {
			return i, b
		}
		if w.HardState != nil {
			b.HardState = w.HardState
		}
		b.Entries = append(b.Entries, w.Entries...)
		b.Sync = b.Sync || w.Sync
		if separate {
			return 1, b
		}
	}
	return len(tasks), b
}

// installSnapshot replaces the newest snapshot by a staged snapshot, and resets the log to start after this
// snapshot, with the entries of the batch. If the machine stops in between, the next Open resets the log.
func (n *Node) installSnapshot(log *filelog.Appender, t writeTask, batch filelog.Batch) (*core.Installed, error) {
	meta := t.write.Snapshot.GetMetadata()
	if t.staged == "" {
		return nil, fmt.Errorf("install snapshot of entry %d: the snapshot was not received", meta.GetIndex())
	}
	if err := log.Reserve(); err != nil { // reserve the space before the snapshot is installed
		return nil, err
	}
	r, err := n.replaceSnapshot(t.staged)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	state, err := replica.Read(r.Tables())
	if err != nil {
		return nil, err
	}
	if err := log.Reset(meta.GetIndex(), meta.GetTerm()); err != nil {
		return nil, err
	}
	batch.Sync = true
	if err := log.Append(batch); err != nil {
		return nil, err
	}
	return &core.Installed{
		Snapshot: core.Snapshot{Index: meta.GetIndex(), Term: meta.GetTerm(), Size: r.Size(), Members: state.Members.Index},
		Replica:  state,
	}, nil
}
