package raftlog

// This file creates snapshots from the files of a peer, which may be running.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

// Compaction is the result of [CompactOffline].
type Compaction struct {
	// Index and Term are the index and the term of the last entry in the snapshot.
	Index, Term uint64
	// Size is the size of the file in bytes.
	Size int64
	// Through is the index of the last entry that the log does not need when the peer has
	// the snapshot: Index, or less if later entries have IDs within the deduplication
	// window.
	Through uint64
	// Prunable contains the paths, relative to the peer's directory, of the files of the log that contain no
	// entries after Through. They may be deleted after the peer has installed the snapshot, and must not be
	// deleted before.
	Prunable []string
}

// OfflineConfig configures [CompactOffline]. Dir, Index and Target are required.
type OfflineConfig struct {
	// Dir is the directory of the peer.
	Dir string
	// Index is the index of the last entry that the snapshot should contain.
	// min(LastApplied, PruneIndex) of the peer's [api.Info] leaves the entries of all IDs
	// within the deduplication window to peers that join later. A higher index is safe as
	// well, because the snapshot contains the IDs.
	Index uint64
	// Target is the file to create, which must not exist. A peer installs the snapshot if Target is the peer's
	// Config.CompactFile.
	Target string
	// StateMachine must not be used by other code. If StateMachine is nil, the snapshot contains no data, like
	// the snapshot of a peer without a state machine.
	StateMachine StateMachine
	// Committed is an index that this peer is known to have committed, from its Info. The
	// peer's files do not show that the newest entries are committed until later entries
	// follow.
	Committed uint64
}

// CompactOffline creates a snapshot up to the entry with index cfg.Index from the files in
// a peer's directory: it passes the peer's newest snapshot and the following entries to the
// state machine, which then writes the new snapshot. The peer's files are only read, and
// the peer may be running. Target is created completely or not at all. CompactOffline
// blocks until it is complete or ctx is done.
//
// Errors: [api.ErrInvalid] if the peer's snapshot already contains the index, or the index is
// not known to be committed; if the state machine is ahead of the index, or is missing
// although the snapshot contains data; and if Target exists. [api.ErrFault] if files are
// damaged. Errors of the state machine, the cause of ctx, and errors of reading and
// writing.
func CompactOffline(ctx context.Context, cfg OfflineConfig) (Compaction, error) {
	dir, target := cfg.Dir, cfg.Target
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%w: %s exists: the peer has not installed the previous snapshot yet, or does not watch this file (CompactFile)", api.ErrInvalid, target)
		}
		return Compaction{}, err
	}
	r, err := openSnapshotFile(disk.OS(dir), snapshot.Name)
	if err != nil {
		return Compaction{}, fmt.Errorf("raftlog: compact %s: %w", dir, err)
	}
	defer r.Close()
	c := offlineCompaction{machine: cfg.StateMachine, index: cfg.Index, committed: cfg.Committed, old: r.Meta()}
	if err := c.restoreSnapshot(r); err != nil {
		return Compaction{}, fmt.Errorf("raftlog: compact %s: %w", dir, err)
	}
	if err := c.replayLog(ctx, dir); err != nil {
		return Compaction{}, fmt.Errorf("raftlog: compact %s: %w", dir, err)
	}
	made := Compaction{Index: c.index, Term: c.state.Term, Through: min(c.index, c.state.PruneIndex())}
	log, err := offline.ReadLog(dir)
	if err != nil {
		return Compaction{}, err
	}
	made.Prunable = log.Prunable(made.Through)
	made.Size, err = c.writeTarget(target)
	return made, err
}

// offlineCompaction is the state of a call of CompactOffline.
type offlineCompaction struct {
	machine          StateMachine
	index, committed uint64
	old              snapshot.Meta
	state            *replica.State
	applied          uint64      // the index of the last entry that the state machine has applied
	batch            []api.Entry // entries that the state machine will apply next
	bytes            int         // the size of the data in batch
}

// restoreSnapshot restores the replicated state, and the state machine unless it is newer, from the peer's
// snapshot.
func (c *offlineCompaction) restoreSnapshot(r *snapshot.Reader) (err error) {
	if c.index <= c.old.Index {
		return fmt.Errorf("%w: entry %d is already in the peer's snapshot, which ends at %d", api.ErrInvalid, c.index, c.old.Index)
	}
	if c.state, err = replica.Read(r.Tables()); err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	if c.machine == nil {
		if r.DataSize() > 0 {
			return fmt.Errorf("%w: the peer's snapshot has %d bytes of a state machine, which is required to create another snapshot: "+
				"call raftlog.CompactOffline with the state machine", api.ErrInvalid, r.DataSize())
		}
		c.machine = noStateMachine{}
	}
	if c.applied, err = c.machine.LastApplied(); err != nil {
		return fmt.Errorf("read the index that the state machine has applied: %w", err)
	}
	switch {
	case c.applied > c.index:
		return fmt.Errorf("%w: the state machine has applied entry %d, but the snapshot must be of entry %d", api.ErrInvalid, c.applied, c.index)
	case c.applied >= c.old.Index, r.DataSize() == 0 && c.old.Index == 1:
		return nil
	}
	data := r.Data()
	defer data.Close()
	if err := c.machine.Restore(c.old.Index, data); err != nil {
		return fmt.Errorf("restore the state of entry %d: %w", c.old.Index, err)
	}
	c.applied = c.old.Index
	return nil
}

// errAllRead ends the reading of the log after the last requested entry.
var errAllRead = errors.New("raftlog: all entries were read")

// replayLog applies the entries after the peer's snapshot, through the requested index.
func (c *offlineCompaction) replayLog(ctx context.Context, dir string) error {
	extent, err := filelog.History(disk.OS(dir), offline.LogDir, func(r filelog.Record, committed bool) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.Index == c.old.Index && r.Term != c.old.Term:
			return fmt.Errorf("%w: entry %d is of term %d in the log, and of term %d in the snapshot", api.ErrFault, r.Index, r.Term, c.old.Term)
		case r.Index <= c.old.Index:
			return nil
		case r.Index > c.index || !committed && r.Index > c.committed:
			return errAllRead
		case r.Index != c.state.Index+1:
			return fmt.Errorf("%w: the log begins at entry %d, and the snapshot ends at %d; if the peer has just received another snapshot, try again", api.ErrFault, r.Index, c.state.Index)
		}
		return c.applyRecord(r)
	})
	switch {
	case errors.Is(err, filelog.ErrCorrupt):
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	case err != nil && !errors.Is(err, errAllRead):
		return err
	case c.state.Index < c.index:
		return fmt.Errorf("%w: entry %d is not known to be committed; the last entry that the files show to be committed is %d: use that index, or let the running peer create the snapshot (raftlog compact -p)", api.ErrInvalid, c.index, extent.Commit)
	}
	return c.flushBatch()
}

func (c *offlineCompaction) applyRecord(r filelog.Record) error {
	o, err := c.state.Apply(&raftpb.Entry{Index: &r.Index, Term: &r.Term, Type: &r.Type, Data: r.Data})
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	if o.Kind == api.KindState && !o.Skipped() && o.Index > c.applied {
		c.batch = append(c.batch, o.Entry())
		c.bytes += len(o.Data)
	}
	if c.bytes >= readBytes || len(c.batch) >= 1000 {
		return c.flushBatch()
	}
	return nil
}

// flushBatch applies the batch to the state machine.
func (c *offlineCompaction) flushBatch() error {
	through := c.state.Index
	if through <= c.applied {
		return nil
	}
	if err := c.machine.Apply(c.batch, through); err != nil {
		return fmt.Errorf("apply entries through %d: %w", through, err)
	}
	c.applied, c.batch, c.bytes = through, nil, 0
	return nil
}

// writeTarget writes the snapshot to a temporary directory next to target, and links it to target.
func (c *offlineCompaction) writeTarget(target string) (size int64, err error) {
	parent := filepath.Dir(target)
	fsys := disk.OS(parent)
	if err := fsys.MkdirAll("."); err != nil {
		return 0, err
	}
	temporary, err := os.MkdirTemp(parent, ".compact-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	data, err := c.machine.Snapshot()
	if err != nil {
		return 0, fmt.Errorf("snapshot of the state machine: %w", err)
	}
	w, err := writeSnapshotFile(disk.OS(temporary), c.old.Cluster, c.state.View(), c.state.Members.ConfState(), data)
	if err = errors.Join(err, closeIfCloser(data)); err != nil {
		return 0, err
	}
	if err := w.Commit(); err != nil {
		return 0, err
	}
	info, err := os.Stat(filepath.Join(temporary, snapshot.Name))
	if err != nil {
		return 0, err
	}
	// Unlike a rename, a link does not replace an existing file.
	if err := fsys.Link(filepath.ToSlash(filepath.Join(filepath.Base(temporary), snapshot.Name)), filepath.Base(target)); err != nil {
		return 0, err
	}
	return info.Size(), fsys.SyncDir(".")
}
