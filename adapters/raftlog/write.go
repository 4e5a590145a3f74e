package raftlog

import (
	"context"
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

// task is work for the disk, with the received snapshot that it installs.
type task struct {
	work   *core.Write
	staged string
}

// stored is work that is durable.
type stored struct {
	work      *core.Write
	installed *core.Installed
}

// write writes the log: all work that has come together by one write and one sync. The first
// error is the end of the node, because it is not known what a disk holds that has failed to sync;
// except for a full disk, which has refused the work before anything was written.
func (n *Node) write() {
	w := &writing{n: n, log: filelog.NewAppender(n.files)}
	defer func() {
		if errors.Is(n.Err(), api.ErrFault) {
			return
		}
		if err := w.log.Finish(); err != nil {
			n.log.Error("writing the commit index failed", "err", err)
		}
	}()
	var retry <-chan time.Time // while the disk has no space
	for {
		var err error
		select {
		case <-n.ctx.Done():
			return
		case <-n.work.wake:
		case <-retry:
			retry = nil
			if err = w.log.Reserve(); errors.Is(err, filelog.ErrNoSpace) {
				err = nil
			}
		}
		if w.tasks = append(w.tasks, n.work.take()...); err == nil {
			err = w.all()
		}
		full := errors.Is(err, filelog.ErrNoSpace)
		if full {
			err = w.ahead()
		}
		if n.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.fail(fmt.Errorf("write the log: %w", err))
			return
		}
		if w.room(full); retry == nil && w.limited {
			retry = time.After(retryFull)
		}
	}
}

// retryFull is how often it is tried again to allocate space on a full disk.
const retryFull = 500 * time.Millisecond

// writing is what the goroutine that writes the log keeps.
type writing struct {
	n      *Node
	log    *filelog.Appender
	tasks  []task // to be done, in order
	looked int    // of them, those that ahead has dealt with

	limited bool // the disk has no space for another segment
}

// all does all tasks. After filelog.ErrNoSpace those are left that it is about.
func (w *writing) all() error {
	n := w.n
	for most := len(w.tasks); len(w.tasks) > 0; {
		count, batch := together(w.tasks[:most])
		var done []stored
		for _, t := range w.tasks[:count] {
			done = append(done, stored{work: t.work})
		}
		var err error
		switch t := w.tasks[0]; {
		case t.work.Snapshot != nil:
			done[0].installed, err = n.install(w.log, t, batch)
		case t.work.Compact != 0:
			if err = w.log.Append(batch); err == nil {
				err = w.log.Compact(t.work.Compact)
			}
		default:
			err = w.log.Append(batch)
		}
		if errors.Is(err, filelog.ErrNoSpace) && count > 1 { // there may be room for the first one
			most = 1
			continue
		}
		if err != nil {
			return err
		}
		// Peers wait for this, the loop does not: it goes from here.
		for _, t := range w.tasks[:count] {
			w.send(t.work.Frames)
			t.work.Sent = true
		}
		w.tasks = w.tasks[count:]
		w.looked = max(0, w.looked-count)
		most = len(w.tasks)
		select {
		case n.stored <- done:
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		}
	}
	w.tasks = nil
	return nil
}

func (w *writing) send(frames []core.Frame) {
	for _, s := range frames {
		w.n.net.Send(s.To, s.Urgent, s.Data)
	}
}

// ahead does what need not wait for the tasks that are left until the disk has space: votes, and
// compactions, of which space can come.
func (w *writing) ahead() error {
	for w.looked < len(w.tasks) {
		work := w.tasks[w.looked].work
		votes, err := work.TakeVotes(func(hs *raftpb.HardState) error {
			return w.log.Append(filelog.Batch{HardState: hs, Sync: true})
		})
		w.send(votes)
		if err == nil && work.Compact != 0 && w.looked > 0 {
			if err = w.log.Compact(work.Compact); err == nil {
				w.tasks = slices.Delete(w.tasks, w.looked, w.looked+1)
				w.looked--
				select {
				case w.n.stored <- []stored{{work: work}}:
				case <-w.n.ctx.Done():
				}
			}
		}
		if errors.Is(err, filelog.ErrNoSpace) { // not even for that
			return nil
		}
		if err != nil {
			return err
		}
		w.looked++
	}
	return nil
}

// room tells the loop for how much the disk has room.
func (w *writing) room(full bool) {
	n := w.n
	room := w.log.Room()
	n.room.Store(room)
	n.full.Store(full)
	if limited := room != math.MaxInt64; limited != w.limited {
		w.limited = limited
		if limited {
			n.log.Warn("no disk space for the next segment of the log: updates are rejected when the current segment is full", "room", max(0, room))
		} else {
			n.log.Info("disk space for the log is available again")
		}
	}
}

// together returns how many of the first tasks can be written at once, and what is to be
// written. What installs a snapshot, or compacts, is done alone.
func together(tasks []task) (int, filelog.Batch) {
	var b filelog.Batch
	for i, t := range tasks {
		w := t.work
		alone := w.Snapshot != nil || w.Compact != 0
		if i > 0 && (alone || len(b.Entries) > 0 && len(w.Entries) > 0 && w.Entries[0].GetIndex() != b.Entries[len(b.Entries)-1].GetIndex()+1) {
			return i, b
		}
		if w.HardState != nil {
			b.HardState = w.HardState
		}
		b.Entries = append(b.Entries, w.Entries...)
		b.Sync = b.Sync || w.Sync
		if alone {
			return 1, b
		}
	}
	return len(tasks), b
}

// install has a received snapshot take the place of the newest one, and the log begin anew
// behind it, with what the batch has. If the machine stops in between, Open does the rest.
func (n *Node) install(log *filelog.Appender, t task, batch filelog.Batch) (*core.Installed, error) {
	meta := t.work.Snapshot.GetMetadata()
	if t.staged == "" {
		return nil, fmt.Errorf("snapshot %d was not received", meta.GetIndex())
	}
	if err := log.Reserve(); err != nil { // before the snapshot is put in place
		return nil, err
	}
	r, err := n.put(t.staged)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tables, err := replica.Read(r.Tables())
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
		Snapshot: core.Snapshot{Index: meta.GetIndex(), Term: meta.GetTerm(), Size: r.Size(), Members: tables.Members.Index},
		Replica:   tables,
	}, nil
}
