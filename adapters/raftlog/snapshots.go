package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
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
// unchanged, and the previous snapshot remains.
func (n *Node) Compact(ctx context.Context) (index uint64, err error) {
	w := &compaction{done: make(chan error, 1)}
	if err := n.do(ctx, func(c *core.Core) {
		w.index = c.Replica().Index
		n.current.compactions = append(n.current.compactions, w)
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

// compaction is somebody who waits for a snapshot. But for done it is the loop's.
type compaction struct {
	index   uint64 // of the snapshot, or at least that
	written bool
	through uint64 // the log is to begin behind it; 0 if it begins where it does
	done    chan error
}

// snapshotTaken tells those who wait for one that is not newer.
func (l *looping) snapshotTaken(index, through uint64, err error) {
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

// compacted tells those for whom the log begins where it is to. A newer snapshot that was
// installed has come before theirs, and the log begins behind it.
func (l *looping) compacted() {
	status := l.c.Status()
	l.compactions = slices.DeleteFunc(l.compactions, func(w *compaction) bool {
		if !w.written && w.index < status.Snapshot.Index {
			w.index, w.written = status.Snapshot.Index, true
		}
		is := w.written && w.through < status.First
		if is {
			w.done <- nil
		}
		return is
	})
}

func (n *Node) appliedIndex() uint64 {
	index, _ := n.applied.now()
	return index
}

// PrunableFiles returns the files of the log, in Config.Dir, that contain only truncated
// entries. They may be moved or deleted.
func (n *Node) PrunableFiles() []string {
	return n.files.Prunable(n.status.Load().First - 1)
}

// takeSnapshot writes a snapshot of what the state machine is now, by another goroutine.
func (n *Node) takeSnapshot(t *core.CreateSnapshot) error {
	if n.has > t.Index { // just after the start: what it would write is not the state of then
		err := fmt.Errorf("%w: the state machine has applied entry %d, and the log was read up to %d", api.ErrBusy, n.has, t.Index)
		return n.do(n.ctx, func(c *core.Core) {
			c.ReportSnapshotFailed()
			n.current.snapshotTaken(t.Index, 0, err)
		})
	}
	data, err := n.machine().Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if !n.goes(func() {
		s, err := n.writeSnapshot(t, data)
		overtaken := errors.Is(err, snapshot.ErrOlder)
		if overtaken {
			err = nil
		}
		if err = errors.Join(err, closeIt(data)); err != nil {
			n.log.Error("snapshot failed", "index", t.Index, "err", err)
		}
		_ = n.do(n.ctx, func(c *core.Core) {
			switch {
			case err != nil:
				c.ReportSnapshotFailed()
				n.current.snapshotTaken(t.Index, 0, err)
			case overtaken: // who waits is told when the peer knows of the newer one, see compacted
				c.ReportSnapshotFailed()
			default:
				n.current.snapshotTaken(s.Index, c.ReportSnapshotCreated(s), nil)
			}
		})
	}) {
		return closeIt(data)
	}
	return nil
}

// writeSnapshot has an error that wraps snapshot.ErrOlder if a newer one has taken the place of
// the newest meanwhile: the leader's, or another program's.
func (n *Node) writeSnapshot(t *core.CreateSnapshot, data io.WriterTo) (core.Snapshot, error) {
	w, err := snapshot.Create(n.fs, ".", snapshot.Meta{
		Cluster: n.cfg.Cluster, Index: t.Index, Term: t.Term, Conf: t.Conf, Created: time.Now(),
	})
	if err != nil {
		return core.Snapshot{}, err
	}
	if _, err = t.View.WriteTo(w.Tables()); err == nil {
		_, err = data.WriteTo(w.Data())
	}
	if err != nil {
		w.Abort()
		return core.Snapshot{}, err
	}
	// Nobody else puts a snapshot in place between the look at the present one and the change.
	n.replacing.Lock()
	defer n.replacing.Unlock()
	if err := w.Commit(); err != nil {
		return core.Snapshot{}, err
	}
	r, err := n.newest()
	if err != nil {
		return core.Snapshot{}, err
	}
	defer r.Close()
	return core.Snapshot{Index: t.Index, Term: t.Term, Size: r.Size(), Members: t.Members}, nil
}

// newest opens the newest snapshot. snapshot.Open is for the start only: it removes those
// that are being written.
func (n *Node) newest() (*snapshot.Reader, error) { return snapshot.OpenFile(n.fs, snapshot.Name) }

// sendSnapshot sends the newest snapshot to a peer that lags behind the log's beginning.
func (n *Node) sendSnapshot(s core.SendSnapshot) {
	n.goes(func() {
		err := n.stream(s)
		if err != nil {
			n.log.Warn("sending a snapshot failed", "to", s.To, "index", s.Index, "err", err)
		}
		_ = n.do(n.ctx, func(c *core.Core) { c.ReportSnapshotSent(s.To, err == nil) })
	})
}

func (n *Node) stream(s core.SendSnapshot) error {
	r, err := n.newest()
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Meta().Index != s.Index {
		return fmt.Errorf("there is a newer snapshot, of entry %d", r.Meta().Index)
	}
	return n.net.Snapshot(n.ctx, s.To, s.Frame, r.Size(), io.NewSectionReader(r.Raw(), 0, r.Size()))
}

// receive takes a snapshot that the leader sends. It is on disk, beside the one in use, when
// the peer is told of it, who decides.
func (n *Node) receive(conn *link.Conn) {
	from := conn.Remote().ID
	in, err := transport.ReceiveSnapshot(conn)
	if err != nil {
		n.log.Warn("receiving a snapshot failed", "from", from, "err", err)
		return
	}
	name, meta, err := n.stage(in)
	if err == nil {
		err = n.hand(from, in.Header, name, meta)
	}
	if err = errors.Join(err, in.Finish(err)); err != nil {
		n.log.Warn("receiving a snapshot failed", "from", from, "err", err)
	}
}

// received begins the names of snapshots that are being received.
const received = "snap.received-"

// stage puts a snapshot into a file of its own, and looks at it.
func (n *Node) stage(body io.Reader) (name string, meta snapshot.Meta, err error) {
	name = fmt.Sprintf("%s%016x", received, rand.Uint64())
	if err := copyTo(n.fs, name, body); err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	r, err := snapshot.OpenFile(n.fs, name)
	if err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	meta = r.Meta()
	err = r.Close()
	if meta.Cluster != n.cfg.Cluster {
		err = fmt.Errorf("%w: it belongs to cluster %q", api.ErrInvalid, meta.Cluster)
	}
	if err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	return name, meta, nil
}

func copyTo(fsys disk.FS, name string, from io.Reader) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, 0), from)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// hand tells the peer of a snapshot; one that it does not want, or that is not the one that
// the frame announces, is deleted.
func (n *Node) hand(from string, frame []byte, name string, meta snapshot.Meta) error {
	var failed error
	kept := false
	err := n.do(n.ctx, func(c *core.Core) {
		n.staged[meta.Index] = name
		failed = c.ReceiveSnapshot(from, frame, meta.Index, meta.Term)
		n.current.carryOut()
		_, left := n.staged[meta.Index]
		delete(n.staged, meta.Index)
		kept = !left
	})
	if err = errors.Join(err, failed); err != nil || !kept {
		return errors.Join(err, n.fs.Remove(name))
	}
	return nil
}

// watchInterval is how often Config.CompactFile is looked for.
const watchInterval = time.Second

// watchCompactFile takes over snapshots that another program has made.
func (n *Node) watchCompactFile() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		switch err := n.takeOver(n.cfg.CompactFile); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			n.log.Error("the snapshot of another program was rejected and renamed", "file", n.cfg.CompactFile, "err", err)
		}
	}
}

// takeOver installs a snapshot that was made of this peer's log. One that does not fit is put
// aside, so that it is looked at once.
func (n *Node) takeOver(file string) error {
	outside := disk.OS(filepath.Dir(file))
	f, err := outside.OpenRead(filepath.Base(file))
	if err != nil {
		return err
	}
	size, err := f.Size()
	var name string
	var meta snapshot.Meta
	if err == nil {
		name, meta, err = n.stage(io.NewSectionReader(f, 0, size))
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = n.adopt(name, meta.Index); err != nil {
			_ = n.fs.Remove(name) // unless it was consumed
		}
	}
	if err != nil {
		return errors.Join(err, outside.Rename(filepath.Base(file), filepath.Base(file)+".refused"))
	}
	n.log.Info("installed the snapshot of another program", "index", meta.Index)
	return outside.Remove(filepath.Base(file))
}

// put has a received snapshot take the place of the newest one.
func (n *Node) put(name string) (*snapshot.Reader, error) {
	n.replacing.Lock()
	defer n.replacing.Unlock()
	return snapshot.InstallFile(n.fs, ".", name)
}

func (n *Node) adopt(name string, index uint64) error {
	r, err := snapshot.OpenFile(n.fs, name)
	if err != nil {
		return err
	}
	tables, err := replica.Read(r.Tables())
	meta, empty := r.Meta(), r.DataSize() == 0
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	status := n.status.Load()
	switch term, err := n.files.Term(index); {
	case empty && n.cfg.StateMachine != nil:
		return fmt.Errorf("%w: it has no data of the state machine", api.ErrInvalid)
	case index <= status.Snapshot.Index:
		return fmt.Errorf("%w: it is of entry %d, and there is one of entry %d", api.ErrInvalid, index, status.Snapshot.Index)
	case index > status.Applied:
		return fmt.Errorf("%w: it is of entry %d, and this peer has applied %d", api.ErrInvalid, index, status.Applied)
	case err != nil:
		return err
	case term != meta.Term || tables.Index != index:
		return fmt.Errorf("%w: it is of entry %d in term %d, and the log has it in term %d", api.ErrInvalid, index, meta.Term, term)
	}
	installed, err := n.put(name)
	if err != nil {
		return err
	}
	s := core.Snapshot{Index: index, Term: meta.Term, Size: installed.Size(), Members: tables.Members.Index}
	closed := installed.Close() // the snapshot is in place, whatever this says
	return errors.Join(n.do(n.ctx, func(c *core.Core) {
		n.current.snapshotTaken(s.Index, c.ReportSnapshotCreated(s), nil)
	}), closed)
}
