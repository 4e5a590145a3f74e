package raftlog

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// task is work for the disk, with the received snapshot that it installs.
type task struct {
	work   *core.Work
	staged string
}

// stored is work that is durable.
type stored struct {
	work      *core.Work
	installed *core.Installed
}

// write writes the log: all work that has come together by one write and one sync. The first
// error is the end of the node: what a disk that has failed to sync holds, nobody knows.
func (n *Node) write() {
	log := filelog.NewAppender(n.files)
	defer func() {
		if errors.Is(n.Err(), ErrFault) {
			return
		}
		if err := log.Finish(); err != nil {
			n.log.Error("write the commit index", "error", err)
		}
	}()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.work.wake:
		}
		tasks := n.work.take()
		for len(tasks) > 0 {
			count, batch := together(tasks)
			var done []stored
			for _, t := range tasks[:count] {
				done = append(done, stored{work: t.work})
			}
			var err error
			switch t := tasks[0]; {
			case t.work.Snapshot != nil:
				done[0].installed, err = n.install(log, t, batch)
			case t.work.Compact != 0:
				if err = log.Append(batch); err == nil {
					err = log.Compact(t.work.Compact)
				}
			default:
				err = log.Append(batch)
			}
			if err != nil {
				n.fail(fmt.Errorf("write the log: %w", err))
				return
			}
			// Peers wait for this, the loop does not: it goes from here.
			for _, t := range tasks[:count] {
				for _, s := range t.work.Send {
					n.net.Send(s.To, s.Urgent, s.Frame)
				}
				t.work.Sent = true
			}
			tasks = tasks[count:]
			select {
			case n.stored <- done:
			case <-n.ctx.Done():
				return
			}
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
		Tables:   tables,
	}, nil
}
