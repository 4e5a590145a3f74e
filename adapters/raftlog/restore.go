package raftlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// Exported says what a snapshot file has.
type Exported struct {
	Cluster     string
	Index, Term uint64 // of the last entry in it
	Size        int64  // of the file, in bytes
}

// ExportOffline copies the newest snapshot of a peer's directory to the file target, which must
// not exist, and verifies it. The peer may run meanwhile. Entries behind the snapshot are not in
// it: see [Node.Compact] and [CompactOffline], which make a newer one. Target is there as a whole
// or not at all. It blocks until the copy is on disk.
//
// Errors: [ErrInvalid] if target exists; [ErrFault] for a snapshot that is damaged; those of
// reading and writing.
func ExportOffline(dir, target string) (Exported, error) {
	made, err := export(dir, target)
	if err != nil {
		return Exported{}, fmt.Errorf("raftlog: export the snapshot of %s: %w", dir, err)
	}
	return made, nil
}

func export(dir, target string) (made Exported, err error) {
	if _, err := os.Lstat(target); err == nil {
		return made, fmt.Errorf("%w: %s exists", ErrInvalid, target)
	}
	r, err := openSnapshot(disk.OS(dir), snapshot.Name)
	if err != nil {
		return made, err
	}
	defer r.Close()
	parent := disk.OS(filepath.Dir(target))
	temporary, name := fmt.Sprintf(".%s.%s", filepath.Base(target), identity.New()), filepath.Base(target)
	if err := copyTo(parent, temporary, io.NewSectionReader(r.Raw(), 0, r.Size())); err != nil {
		return made, errors.Join(err, parent.Remove(temporary))
	}
	err = parent.Link(temporary, name) // which, other than a rename, replaces nothing
	if err = errors.Join(err, parent.Remove(temporary)); err == nil {
		err = parent.SyncDir(".")
	}
	m := r.Meta()
	return Exported{Cluster: m.Cluster, Index: m.Index, Term: m.Term, Size: r.Size()}, err
}

func openSnapshot(fsys disk.FS, name string) (*snapshot.Reader, error) {
	r, err := snapshot.OpenFile(fsys, name)
	if errors.Is(err, snapshot.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrFault, err)
	}
	return r, err
}

// DefaultIndexGap is the default of RestoreConfig.IndexGap.
const DefaultIndexGap = 1_000_000

// RestoreConfig is what [RestoreOffline] is to do. Snapshot, Dir and Peer have to be set.
type RestoreConfig struct {
	// Snapshot is a file that ExportOffline has made.
	Snapshot string
	// Dir is the directory to be made; it must not have a peer's data.
	Dir string
	// Peer is the ID and the address of the only peer of the new cluster.
	Peer Peer
	// IndexGap is how many indexes are left out behind the snapshot. Fencing tokens are indexes:
	// those that were issued after the snapshot was made are not issued again, if there were
	// fewer entries than that. The default is DefaultIndexGap.
	IndexGap uint64
}

// RestoreOffline makes the directory of a peer that begins a new cluster of one, with the name and
// the state of the cluster that a snapshot was exported from: the state machine's data, the
// elections, and the request IDs. Everything behind the snapshot is lost. The new cluster has an
// identity of its own, so that peers of the old one are refused. It blocks until all is on disk;
// after an error the directory is to be removed.
//
// Errors: [ErrInvalid] for an argument that cannot work, and for a directory that is not empty;
// [ErrFault] for a snapshot that is damaged; those of reading and writing.
func RestoreOffline(cfg RestoreConfig) (Exported, error) {
	if cfg.IndexGap == 0 {
		cfg.IndexGap = DefaultIndexGap
	}
	made, err := restoreTo(cfg)
	if err != nil {
		return Exported{}, fmt.Errorf("raftlog: restore %s: %w", cfg.Snapshot, err)
	}
	return made, nil
}

func restoreTo(cfg RestoreConfig) (made Exported, err error) {
	if _, _, err := net.SplitHostPort(cfg.Peer.Addr); err != nil || cfg.Peer.ID == "" {
		return made, fmt.Errorf("%w: peer %q at %q: an ID and host:port are needed", ErrInvalid, cfg.Peer.ID, cfg.Peer.Addr)
	}
	r, err := openSnapshot(disk.OS(filepath.Dir(cfg.Snapshot)), filepath.Base(cfg.Snapshot))
	if err != nil {
		return made, err
	}
	defer r.Close()
	tables, err := replica.Read(r.Tables())
	if err != nil {
		return made, fmt.Errorf("%w: %w", ErrFault, err)
	}
	fsys := disk.OS(cfg.Dir)
	if err := fsys.MkdirAll("."); err != nil {
		return made, err
	}
	for _, name := range []string{identity.OwnerFile, snapshot.Name, logDir} {
		if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return made, errors.Join(fmt.Errorf("%w: directory %s has %s: give an empty one", ErrInvalid, cfg.Dir, name), err)
		}
	}
	meta := r.Meta()
	tables.Restart([]entry.Peer{replica.With(meta.Cluster, cfg.Peer)}, cfg.IndexGap)
	w, err := snapshot.Create(fsys, ".", snapshot.Meta{
		Cluster: meta.Cluster, Index: tables.Index, Term: tables.Term, Conf: tables.Members.ConfState(), Created: time.Now(),
	})
	if err != nil {
		return made, err
	}
	_, err = tables.View().WriteTo(w.Tables())
	if err == nil {
		data := r.Data()
		_, err = io.Copy(w.Data(), data)
		err = errors.Join(err, data.Close())
	}
	if err != nil {
		w.Abort()
		return made, err
	}
	if err := w.Commit(); err != nil {
		return made, err
	}
	owner := identity.Owner{
		Format: identity.Format, Cluster: meta.Cluster, Peer: cfg.Peer.ID,
		Founding: identity.Recovered(meta.Cluster), Instance: identity.New(),
	}
	return Exported{Cluster: meta.Cluster, Index: tables.Index, Term: tables.Term, Size: r.Size()}, owner.Write(fsys)
}
