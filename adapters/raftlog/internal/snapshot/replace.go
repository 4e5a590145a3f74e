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

// Install reads a snapshot, which is the content of a Reader.Raw, from the reader from, and makes it
// the newest snapshot in dir, in the same way as Commit. It does not read beyond the snapshot. It
// replaces the current snapshot only after the new one is verified and durable. Errors wrap ErrCorrupt,
// ErrVersion, ErrOlder, ErrOtherCluster or the error of from. After an error nothing has changed,
// unless the error concerns the durability of the change.
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
		fs.Remove(name) // if Remove fails, Open removes the file later
		return nil, fmt.Errorf("snapshot: install in %s: %w", dir, err)
	}
	return &Reader{layout: l, file: f, name: path.Join(dir, Name)}, nil
}

// receiveFile writes a snapshot from a reader to the file f, and makes the file durable. It returns an
// error if the snapshot must not replace the current one.
func receiveFile(fs disk.FS, dir string, f disk.File, from io.Reader) (layout, error) {
	out := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), 2*maxChunk)
	s := &scanner{r: io.TeeReader(from, out)}
	m, err := s.readMeta()
	if err != nil {
		return layout{}, err
	}
	// Reject an older snapshot, or a snapshot of another cluster, before receiving its data.
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

// InstallFile makes a snapshot file that another program has written on the same disk the newest
// snapshot in dir. It verifies the file and replaces the current snapshot like Install, but renames the
// file instead of copying it. After an error the file still exists, unless the error concerns the
// durability of the change.
func InstallFile(fs disk.FS, dir, name string) (*Reader, error) {
	f, err := fs.Open(name) // open for writing, because Sync requires it
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

// currentSnapshot describes the snapshot that a new snapshot would replace.
type currentSnapshot struct {
	exists bool
	meta   Meta // the metadata of the snapshot; zero if the file is not readable
}

// checkReplaceable describes the current snapshot in dir. It returns an error if a snapshot with the
// metadata m must not replace it.
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
		// A damaged snapshot may be replaced, and is kept as a backup.
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

// replaceCurrent renames a durable file to the name of the newest snapshot, and keeps the current
// snapshot as a backup. There is a snapshot at any time.
func replaceCurrent(fs disk.FS, dir, name string, m Meta) error {
	old, err := checkReplaceable(fs, dir, m)
	if err != nil {
		return err
	}
	if old.exists {
		if err := backUp(fs, dir, old.meta, m); err != nil {
			return fmt.Errorf("snapshot: back up the current snapshot in %s: %w", dir, err)
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

// backUp gives the current snapshot a second name, which contains the time when that snapshot was
// created. If the current snapshot is not readable, the name contains the time when the new snapshot
// was created.
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
		// Without this sync, a power failure could undo the link and keep the rename that follows.
		return fsys.SyncDir(dir)
	}
}
