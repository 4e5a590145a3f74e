package raftlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// watchInterval is the interval at which the node looks for Config.CompactFile.
const watchInterval = time.Second

// watchCompactFile installs snapshots that another program of the same user, or of root, has created. It
// renames a file that it rejects, so that it examines each file once.
func (n *Node) watchCompactFile() {
	outside, name := disk.OS(filepath.Dir(n.cfg.CompactFile)), filepath.Base(n.cfg.CompactFile)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		f, err := disk.OpenPrivate(n.cfg.CompactFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var index uint64
		if err == nil {
			index, err = n.installCompactFile(f)
		}
		if err == nil {
			n.log.Info("installed the snapshot of another program", "index", index)
			if err := outside.Remove(name); err != nil {
				n.log.Error("removing the installed snapshot of another program failed", "file", n.cfg.CompactFile, "err", err)
			}
			continue
		}
		message := "the snapshot of another program was rejected and renamed"
		if failed := outside.Rename(name, name+".refused"); failed != nil {
			message, err = "the snapshot of another program was rejected, and renaming it failed", errors.Join(err, failed)
		}
		n.log.Error(message, "file", n.cfg.CompactFile, "err", err)
	}
}

// installCompactFile installs a snapshot of this peer's log from a file, which it closes, and
// returns the index of the snapshot. It copies the file only if it is a snapshot of this cluster.
func (n *Node) installCompactFile(f disk.File) (index uint64, err error) {
	size, err := f.Size()
	var name string
	var meta snapshot.Meta
	if err == nil {
		if meta, err = snapshot.Verify(f); err == nil {
			err = n.checkCluster(meta)
		}
	}
	if err == nil {
		name, meta, err = n.stageSnapshot(io.NewSectionReader(f, 0, size), size)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = n.adoptSnapshot(name, meta.Index); err != nil {
			_ = n.fs.Remove(name) // ignore the error, because the file was renamed if the snapshot was installed
		}
	}
	return meta.Index, err
}

// adoptSnapshot replaces the newest snapshot by a staged snapshot, if it is newer and belongs to the
// history of this peer.
func (n *Node) adoptSnapshot(name string, index uint64) error {
	r, err := snapshot.OpenFile(n.fs, name)
	if err != nil {
		return err
	}
	state, err := replica.Read(r.Tables())
	meta, empty := r.Meta(), r.DataSize() == 0
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	status := n.publishedStatus()
	switch term, err := n.files.Term(index); {
	case empty && n.cfg.StateMachine != nil:
		return fmt.Errorf("%w: the snapshot has no data for the state machine of this peer", api.ErrInvalid)
	case index <= status.Snapshot.Index:
		return fmt.Errorf("%w: the snapshot ends at entry %d, and this peer already has a snapshot up to entry %d", api.ErrInvalid, index, status.Snapshot.Index)
	case index > status.Applied:
		return fmt.Errorf("%w: the snapshot ends at entry %d, and this peer has applied only the entries through %d", api.ErrInvalid, index, status.Applied)
	case err != nil:
		return err
	case term != meta.Term || state.Index != index:
		return fmt.Errorf("%w: the snapshot ends at entry %d of term %d, but in the log of this peer this entry has term %d", api.ErrInvalid, index, meta.Term, term)
	}
	installed, err := n.replaceSnapshot(name)
	if err != nil {
		return err
	}
	s := core.Snapshot{Index: index, Term: meta.Term, Size: installed.Size(), Members: state.Members.Index}
	closed := installed.Close() // the snapshot remains installed even if Close fails
	return errors.Join(n.callLoop(n.ctx, func(c *core.Core) {
		n.loop.reportSnapshot(s.Index, c.ReportSnapshotCreated(s), nil)
	}), closed)
}
