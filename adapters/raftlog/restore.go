package raftlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// Exported describes a snapshot file.
type Exported struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Index and Term are the index and the term of the last entry in the snapshot.
	Index, Term uint64
	// Size is the size of the file in bytes.
	Size int64
}

// ExportOffline copies the newest snapshot of a peer's directory to the file target, which
// must not exist, and verifies it. The peer may be running. Entries after the snapshot are
// not included; [Node.Compact] and [CompactOffline] create a newer snapshot. Target is
// created completely or not at all. ExportOffline blocks until the copy is on disk.
//
// Errors: [api.ErrInvalid] if target exists; [api.ErrFault] if the snapshot is damaged; errors of
// reading and writing.
func ExportOffline(dir, target string) (Exported, error) {
	made, err := exportSnapshot(dir, target)
	if err != nil {
		return Exported{}, fmt.Errorf("raftlog: export the snapshot of %s: %w", dir, err)
	}
	return made, nil
}

func exportSnapshot(dir, target string) (made Exported, err error) {
	if _, err := os.Lstat(target); err == nil {
		return made, fmt.Errorf("%w: %s exists", api.ErrInvalid, target)
	}
	r, err := openSnapshotFile(disk.OS(dir), snapshot.Name)
	if err != nil {
		return made, err
	}
	defer r.Close()
	parent := disk.OS(filepath.Dir(target))
	temporary, name := fmt.Sprintf(".%s.%s", filepath.Base(target), identity.New()), filepath.Base(target)
	if err := copyTo(parent, temporary, io.NewSectionReader(r.Raw(), 0, r.Size()), r.Size()); err != nil {
		return made, errors.Join(err, parent.Remove(temporary))
	}
	err = parent.Link(temporary, name) // unlike a rename, a link does not replace an existing file
	if err = errors.Join(err, parent.Remove(temporary)); err == nil {
		err = parent.SyncDir(".")
	}
	m := r.Meta()
	return Exported{Cluster: m.Cluster, Index: m.Index, Term: m.Term, Size: r.Size()}, err
}

// openSnapshotFile opens a snapshot. The error wraps ErrFault if it is damaged.
func openSnapshotFile(fsys disk.FS, name string) (*snapshot.Reader, error) {
	r, err := snapshot.OpenFile(fsys, name)
	if errors.Is(err, snapshot.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	return r, err
}

// DefaultIndexGap is the default of RestoreConfig.IndexGap.
const DefaultIndexGap = 1_000_000

// maxRestoredIndex is the maximum index at which a restored cluster starts. A token is the index of an entry,
// as an int64, so 2^62 entries can still follow.
const maxRestoredIndex uint64 = 1 << 62

// RestoreConfig configures [RestoreOffline]. Snapshot, Dir and Peer are required.
type RestoreConfig struct {
	// Snapshot is a file that [ExportOffline] has created.
	Snapshot string
	// Dir is the directory to create. It must not contain data of a peer.
	Dir string
	// Peer is the ID and the address of the only peer of the new cluster.
	Peer api.Peer
	// IndexGap is the number of indexes that are skipped after the snapshot. Fencing tokens
	// are indexes: if fewer entries than IndexGap were written after the snapshot, tokens
	// that were issued in them are not issued again. The default is [DefaultIndexGap]. The
	// index of the snapshot and the gap must not exceed 2^62 together.
	IndexGap uint64
}

// RestoreOffline creates the directory of a peer that starts a new cluster with one member,
// with the name and the state of the cluster from which a snapshot was exported: the state
// machine's data, the elections, and the request IDs. All entries after the snapshot are
// lost. The new cluster receives a new identity, so that peers of the old cluster are rejected.
// RestoreOffline blocks until everything is on disk. After an error, delete the directory.
//
// Errors: [api.ErrInvalid] if an argument is invalid or the directory is not empty; [api.ErrFault]
// if the snapshot is damaged; errors of reading and writing.
func RestoreOffline(cfg RestoreConfig) (Exported, error) {
	if cfg.IndexGap == 0 {
		cfg.IndexGap = DefaultIndexGap
	}
	made, err := restoreDirectory(cfg)
	if err != nil {
		return Exported{}, fmt.Errorf("raftlog: restore %s: %w", cfg.Snapshot, err)
	}
	return made, nil
}

func restoreDirectory(cfg RestoreConfig) (made Exported, err error) {
	if _, _, err := net.SplitHostPort(cfg.Peer.Addr); err != nil || cfg.Peer.ID == "" {
		return made, fmt.Errorf("%w: peer %q at %q: an ID and an address host:port are required", api.ErrInvalid, cfg.Peer.ID, cfg.Peer.Addr)
	}
	r, err := openSnapshotFile(disk.OS(filepath.Dir(cfg.Snapshot)), filepath.Base(cfg.Snapshot))
	if err != nil {
		return made, err
	}
	defer r.Close()
	state, err := replica.Read(r.Tables())
	if err != nil {
		return made, fmt.Errorf("%w: %w", api.ErrFault, err)
	}
	if cfg.IndexGap > maxRestoredIndex || state.Index > maxRestoredIndex-cfg.IndexGap {
		return made, fmt.Errorf("%w: a gap of %d indexes after entry %d exceeds the greatest index, %d", api.ErrInvalid, cfg.IndexGap, state.Index, maxRestoredIndex)
	}
	fsys := disk.OS(cfg.Dir)
	if err := fsys.MkdirAll("."); err != nil {
		return made, err
	}
	for _, name := range []string{identity.OwnerFile, snapshot.Name, logDir} {
		if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return made, errors.Join(fmt.Errorf("%w: directory %s contains %s: use an empty directory", api.ErrInvalid, cfg.Dir, name), err)
		}
	}
	meta := r.Meta()
	state.RestartCluster([]replica.Peer{replica.Numbered(meta.Cluster, cfg.Peer)}, cfg.IndexGap)
	data := r.Data()
	w, err := writeSnapshotFile(fsys, meta.Cluster, state.View(), state.Members.ConfState(), copiedData{data})
	if err = errors.Join(err, data.Close()); err != nil {
		if w != nil {
			w.Abort()
		}
		return made, err
	}
	if err := w.Commit(); err != nil {
		return made, err
	}
	owner := identity.Owner{
		Format: identity.Format, Cluster: meta.Cluster, Peer: cfg.Peer.ID,
		Founding: identity.Recovered(meta.Cluster), Instance: identity.New(),
	}
	return Exported{Cluster: meta.Cluster, Index: state.Index, Term: state.Term, Size: r.Size()}, owner.Write(fsys)
}

// copiedData is an io.WriterTo that writes the data of a reader.
type copiedData struct{ io.Reader }

func (c copiedData) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Reader) }
