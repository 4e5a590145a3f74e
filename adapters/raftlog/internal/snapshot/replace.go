package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// Install reads a snapshot, the content of Reader.Raw, and makes it the newest one in dir, in the
// same way as Commit. It does not read beyond the snapshot. The current snapshot is not changed
// before the new one is verified and durable. Errors wrap ErrCorrupt, ErrVersion, ErrOlder,
// ErrOtherCluster or the error of from. After an error nothing has changed, unless the error
// concerns the durability of the change.
func Install(fs disk.FS, dir string, from io.Reader) (*Reader, error) {
	name, f, err := createTemp(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: create a file in %s: %w", dir, err)
	}
	l, err := receiveFile(fs, dir, f, from)
	if err == nil {
		err = replaceCurrent(fs, dir, name, l.meta)
	}
	if err != nil {
		f.Close()
		fs.Remove(name) // if the removal fails, Open removes the file later
		return nil, fmt.Errorf("snapshot: install in %s: %w", dir, err)
	}
	return &Reader{layout: l, file: f, name: path.Join(dir, Name)}, nil
}

// receiveFile writes a snapshot that may replace the current one to a file, and makes it durable.
func receiveFile(fs disk.FS, dir string, f disk.File, from io.Reader) (layout, error) {
	out := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), 2*maxChunk)
	s := &scanner{r: io.TeeReader(from, out)}
	m, err := s.readMeta()
	if err != nil {
		return layout{}, err
	}
	// Reject an older or foreign snapshot before its data is received.
	if _, err := checkReplaceable(fs, dir, m); err != nil {
		return layout{}, err
	}
	l, err := s.readSections(m)
	if err != nil {
		return layout{}, err
	}
	if err := out.Flush(); err != nil {
		return layout{}, err
	}
	return l, f.Sync()
}

// InstallFile makes a snapshot file on the same disk, which another program has written, the newest one
// in dir. It verifies and replaces as Install does, but renames the file. After an error the file still
// exists, unless the error concerns the durability of the change.
func InstallFile(fs disk.FS, dir, name string) (*Reader, error) {
	f, err := fs.Open(name) // open it for writing, which Sync requires
	if err != nil {
		return nil, fmt.Errorf("snapshot: install %s: %w", name, err)
	}
	l, err := verifyFile(f)
	if err == nil {
		_, err = checkReplaceable(fs, dir, l.meta)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = replaceCurrent(fs, dir, name, l.meta)
	}
	if err == nil && path.Dir(name) != path.Clean(dir) {
		err = fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("snapshot: install %s in %s: %w", name, dir, err)
	}
	return &Reader{layout: l, file: f, name: path.Join(dir, Name)}, nil
}

// currentSnapshot describes the snapshot that will be replaced.
type currentSnapshot struct {
	exists bool
	meta   Meta // the metadata; zero if the snapshot is not readable
}

// checkReplaceable returns an error if a snapshot must not replace the current one in dir.
func checkReplaceable(fsys disk.FS, dir string, m Meta) (currentSnapshot, error) {
	name := path.Join(dir, Name)
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return currentSnapshot{}, nil
	}
	if err != nil {
		return currentSnapshot{}, fmt.Errorf("read the current snapshot: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return currentSnapshot{}, fmt.Errorf("read the current snapshot: %w", err)
	}
	old, err := newScanner(f, size, section{}).readMeta()
	switch {
	case errors.Is(err, ErrCorrupt):
		// The damaged snapshot is kept as a backup.
		return currentSnapshot{exists: true}, nil
	case err != nil:
		return currentSnapshot{}, fmt.Errorf("read the current snapshot %s: %w", name, err)
	case old.Cluster != m.Cluster:
		return currentSnapshot{}, fmt.Errorf("%w: the new snapshot is of cluster %q, and %s is of cluster %q: move that file away if it does not belong here",
			ErrOtherCluster, m.Cluster, name, old.Cluster)
	case old.Index > m.Index:
		return currentSnapshot{}, fmt.Errorf("%w: the new snapshot has index %d, and the current one %d", ErrOlder, m.Index, old.Index)
	}
	return currentSnapshot{exists: true, meta: old}, nil
}

// replaceCurrent makes a durable file the newest snapshot. There is a snapshot at any time.
func replaceCurrent(fs disk.FS, dir, name string, m Meta) error {
	old, err := checkReplaceable(fs, dir, m)
	if err != nil {
		return err
	}
	if old.exists {
		if err := backUp(fs, dir, old.meta, m); err != nil {
			return fmt.Errorf("snapshot: keep the current snapshot of %s: %w", dir, err)
		}
	}
	if err := fs.Rename(name, path.Join(dir, Name)); err != nil {
		return fmt.Errorf("snapshot: install: %w", err)
	}
	if err := fs.SyncDir(dir); err != nil {
		return fmt.Errorf("snapshot: sync %s; the old or the new snapshot will be found there: %w", dir, err)
	}
	return nil
}

// backUp gives the current snapshot a second name, which contains the time when it was created. If that
// time is unknown, the name contains the time when the new snapshot was created.
func backUp(fsys disk.FS, dir string, old, m Meta) error {
	created := old.Created
	if old.Index == 0 {
		created = m.Created
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s-%s-%d.bak", Name, created.UTC().Format("20060102T150405Z"), n)
		err := fsys.Link(path.Join(dir, Name), path.Join(dir, name))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		// Sync here, because a power failure could otherwise undo the link and keep the rename that
		// follows.
		return fsys.SyncDir(dir)
	}
}
