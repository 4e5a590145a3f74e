package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// newestSnapshot opens the newest snapshot. It does not call snapshot.Open, which removes snapshots that are
// being written, and so may be called only before the node has started.
func (n *Node) newestSnapshot() (*snapshot.Reader, error) {
	return snapshot.OpenFile(n.fs, snapshot.Name)
}

// writeSnapshotFile writes a snapshot, which the caller must commit or abort.
func writeSnapshotFile(fsys disk.FS, cluster string, view *replica.View, members *raftpb.ConfState, data io.WriterTo) (*snapshot.Writer, error) {
	w, err := snapshot.Create(fsys, ".", snapshot.Meta{
		Cluster: cluster, Index: view.Index, Term: view.Term, Conf: members, Created: time.Now(),
	})
	if err != nil {
		return nil, err
	}
	if _, err = view.WriteTo(w.Tables()); err == nil {
		_, err = data.WriteTo(w.Data())
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// createSnapshot captures the state of the state machine, and writes a snapshot in another goroutine.
func (n *Node) createSnapshot(s *core.CreateSnapshot) error {
	if n.machineIndex > s.Index { // after a start, a durable state machine can include later entries than the core
		err := fmt.Errorf("%w: the state machine has applied entry %d, but this peer has read its log only up to entry %d", api.ErrBusy, n.machineIndex, s.Index)
		return n.callLoop(n.ctx, func(c *core.Core) {
			c.ReportSnapshotFailed()
			n.loop.reportSnapshot(s.Index, 0, err)
		})
	}
	data, err := n.stateMachine().Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if !n.startGoroutine(func() {
		created, err := n.writeSnapshot(s, data)
		overtaken := errors.Is(err, snapshot.ErrOlder)
		if overtaken {
			err = nil
		}
		if err = errors.Join(err, closeIfCloser(data)); err != nil {
			n.log.Error("snapshot failed", "index", s.Index, "err", err)
		}
		_ = n.callLoop(n.ctx, func(c *core.Core) {
			switch {
			case err != nil:
				c.ReportSnapshotFailed()
				n.loop.reportSnapshot(s.Index, 0, err)
			case overtaken: // completeCompactions replies to the callers of Compact when the core knows the newer snapshot
				c.ReportSnapshotFailed()
			default:
				n.loop.reportSnapshot(created.Index, c.ReportSnapshotCreated(created), nil)
			}
		})
	}) {
		return closeIfCloser(data)
	}
	return nil
}

// writeSnapshot writes a snapshot that replaces the newest one. The error wraps snapshot.ErrOlder if a
// newer snapshot, of the leader or of another program, was installed in the meantime.
func (n *Node) writeSnapshot(s *core.CreateSnapshot, data io.WriterTo) (core.Snapshot, error) {
	w, err := writeSnapshotFile(n.fs, n.cfg.Cluster, s.View, s.Conf, data)
	if err != nil {
		return core.Snapshot{}, err
	}
	// Hold snapshotMu, because Commit compares the snapshot with the newest one, which must not be
	// replaced at the same time.
	n.snapshotMu.Lock()
	defer n.snapshotMu.Unlock()
	if err := w.Commit(); err != nil {
		return core.Snapshot{}, err
	}
	r, err := n.newestSnapshot()
	if err != nil {
		return core.Snapshot{}, err
	}
	defer r.Close()
	return core.Snapshot{Index: s.Index, Term: s.Term, Size: r.Size(), Members: s.Members}, nil
}

// sending contains the snapshots that are being sent, by their receivers. Before a new snapshot is sent, an
// earlier snapshot for the same receiver, for example of an earlier term, is cancelled. The failure of the
// earlier snapshot is not reported to the engine, the Raft library, because the engine would conclude that
// the new snapshot has failed, and would send a third snapshot, which would abort the new one.
type sending map[string]*context.CancelFunc

// beginSnapshot cancels the earlier snapshot for a receiver. The returned context is done when a newer snapshot
// replaces this one. The returned function end must be called once; it reports whether this snapshot is
// still the newest one for the receiver.
func (s sending) beginSnapshot(ctx context.Context, to string) (_ context.Context, cancel context.CancelFunc, end func() bool) {
	ctx, cancel = context.WithCancel(ctx)
	if earlier := s[to]; earlier != nil {
		(*earlier)()
	}
	s[to] = &cancel
	return ctx, cancel, func() bool {
		newest := s[to] == &cancel
		if newest {
			delete(s, to)
		}
		return newest
	}
}

// sendSnapshot sends the newest snapshot to a peer that needs entries that the log does not contain any more.
// It is called by the loop.
func (n *Node) sendSnapshot(s core.SendSnapshot) {
	ctx, cancel, end := n.sending.beginSnapshot(n.ctx, s.To)
	n.startGoroutine(func() {
		defer cancel()
		err := n.streamSnapshot(ctx, s)
		if err != nil && ctx.Err() == nil {
			n.log.Warn("sending a snapshot failed", "to", s.To, "index", s.Index, "err", err)
		}
		_ = n.callLoop(n.ctx, func(c *core.Core) {
			if end() {
				c.ReportSnapshotSent(s.To, err == nil)
			}
		})
	})
}

func (n *Node) streamSnapshot(ctx context.Context, s core.SendSnapshot) error {
	r, err := n.newestSnapshot()
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Meta().Index != s.Index {
		return fmt.Errorf("a newer snapshot, of entry %d, has replaced the requested snapshot", r.Meta().Index)
	}
	return n.net.Snapshot(ctx, s.To, s.Frame, r.Size(), io.NewSectionReader(r.Raw(), 0, r.Size()))
}

// receiveSnapshot receives a snapshot from the leader, if the core accepts its header. It stages the snapshot
// next to the newest snapshot, and then offers it to the core, which decides whether to install it.
func (n *Node) receiveSnapshot(conn *link.Conn) {
	from := conn.Remote().ID
	in, err := transport.ReceiveSnapshot(conn)
	if err != nil {
		n.log.Warn("receiving a snapshot failed", "from", from, "err", err)
		return
	}
	end, err := n.beginReceiving(from, in)
	if err == nil {
		defer end()
		var name string
		var meta snapshot.Meta
		if name, meta, err = n.stageSnapshot(in, in.Size); err == nil {
			err = n.offerSnapshot(from, in.Header, name, meta)
		}
	}
	if err = errors.Join(err, in.Finish(err)); err != nil {
		n.log.Warn("receiving a snapshot failed", "from", from, "err", err)
	}
}

// receiving is a snapshot that is being received.
type receiving struct {
	in    *transport.Incoming
	ended chan struct{}
}

// beginReceiving returns when the snapshot may be received, or an error that describes why it must not. If
// another snapshot is being received, beginReceiving aborts it, because the leader has lost the connection for
// the other snapshot, or has changed. The caller must call end.
func (n *Node) beginReceiving(from string, in *transport.Incoming) (end func(), err error) {
	r := &receiving{in, make(chan struct{})}
	for {
		var rejected error
		var other *receiving
		if err := n.callLoop(n.ctx, func(c *core.Core) {
			if rejected = c.CheckSnapshot(from, in.Header, in.Size); rejected != nil {
				return
			}
			if other = n.receiving.Load(); other == nil {
				n.receiving.Store(r)
			}
		}); err != nil || rejected != nil {
			return nil, errors.Join(err, rejected)
		}
		if other == nil {
			return func() {
				n.receiving.Store(nil)
				close(r.ended)
			}, nil
		}
		other.in.Abort()
		<-other.ended
	}
}

// receivedPrefix is the prefix of the names of staged snapshots.
const receivedPrefix = "snap.received-"

// stageSnapshot writes a snapshot to a separate file, and verifies it.
func (n *Node) stageSnapshot(body io.Reader, size int64) (name string, meta snapshot.Meta, err error) {
	name = fmt.Sprintf("%s%016x", receivedPrefix, rand.Uint64())
	if err := copyTo(n.fs, name, body, size); err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	r, err := snapshot.OpenFile(n.fs, name)
	if err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	meta = r.Meta()
	if err = errors.Join(n.checkCluster(meta), r.Close()); err != nil {
		return "", meta, errors.Join(err, n.fs.Remove(name))
	}
	return name, meta, nil
}

// checkCluster returns an error if a snapshot belongs to another cluster.
func (n *Node) checkCluster(m snapshot.Meta) error {
	if m.Cluster != n.cfg.Cluster {
		return fmt.Errorf("%w: the snapshot belongs to cluster %q", api.ErrInvalid, m.Cluster)
	}
	return nil
}

// copyTo writes size bytes, for which there must be space, to a new file.
func copyTo(fsys disk.FS, name string, from io.Reader, size int64) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if err = f.Allocate(size); err == nil {
		_, err = io.Copy(io.NewOffsetWriter(f, 0), from)
	}
	if err == nil {
		err = f.Sync()
	}
	if disk.IsFull(err) { // any operation may find the disk full, because Allocate does not reserve space on all systems
		err = fmt.Errorf("%w for a snapshot of %d bytes: free some, for example with raftlog compact: %w", api.ErrNoSpace, size, err)
	}
	return errors.Join(err, f.Close())
}

// offerSnapshot offers a staged snapshot to the core. If the core does not need the snapshot, or the frame
// announces another snapshot, offerSnapshot deletes the staged file.
func (n *Node) offerSnapshot(from string, frame []byte, name string, meta snapshot.Meta) error {
	var rejected error
	installing := false
	err := n.callLoop(n.ctx, func(c *core.Core) {
		n.staged[meta.Index] = name
		rejected = c.ReceiveSnapshot(from, frame, meta.Index, meta.Term)
		n.loop.handleOutput()
		_, staged := n.staged[meta.Index]
		delete(n.staged, meta.Index)
		installing = !staged
	})
	if err = errors.Join(err, rejected); err != nil || !installing {
		return errors.Join(err, n.fs.Remove(name))
	}
	return nil
}

// replaceSnapshot replaces the newest snapshot by the staged snapshot with the given name.
func (n *Node) replaceSnapshot(name string) (*snapshot.Reader, error) {
	n.snapshotMu.Lock()
	defer n.snapshotMu.Unlock()
	return snapshot.InstallFile(n.fs, ".", name)
}
