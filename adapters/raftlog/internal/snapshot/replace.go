// This file puts a new snapshot in the place of the present one.

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

// Install receives a snapshot, as Raw of a Reader elsewhere gives it, and makes it the
// newest one of dir as Commit does. It reads up to the snapshot's end and not a byte more.
// The present one is not touched before all of the new one was found undamaged and is
// durable. Errors wrap ErrCorrupt, ErrVersion, ErrOlder, ErrOtherCluster, or what from has
// failed with; then nothing has changed, but for errors of making the change durable.
func Install(fs disk.FS, dir string, from io.Reader) (*Reader, error) {
	name, f, err := createTemp(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: create a file in %s: %w", dir, err)
	}
	l, err := receive(fs, dir, f, from)
	if err == nil {
		err = replace(fs, dir, name, l.meta)
	}
	if err != nil {
		f.Close()
		fs.Remove(name) // Open removes it otherwise
		return nil, fmt.Errorf("snapshot: install in %s: %w", dir, err)
	}
	return &Reader{layout: l, f: f, name: path.Join(dir, Name)}, nil
}

// receive writes a stream to a file, durably, as far as it is a snapshot that dir may have.
func receive(fs disk.FS, dir string, f disk.File, from io.Reader) (layout, error) {
	out := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), 2*maxChunk)
	s := &scanner{r: io.TeeReader(from, out)}
	m, err := s.meta()
	if err != nil {
		return layout{}, err
	}
	// Before much is received in vain.
	if _, err := mayReplace(fs, dir, m); err != nil {
		return layout{}, err
	}
	l, err := s.rest(m)
	if err != nil {
		return layout{}, err
	}
	if err := out.Flush(); err != nil {
		return layout{}, err
	}
	return l, f.Sync()
}

// InstallFile is Install of a file that some other program has put there, on the same disk:
// it is renamed, and so consumed. After an error it is still there, unless the error is of
// making the change durable.
func InstallFile(fs disk.FS, dir, name string) (*Reader, error) {
	f, err := fs.Open(name) // to write, for a sync is one
	if err != nil {
		return nil, fmt.Errorf("snapshot: install %s: %w", name, err)
	}
	l, err := verify(f)
	if err == nil {
		_, err = mayReplace(fs, dir, l.meta)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = replace(fs, dir, name, l.meta)
	}
	if err == nil && path.Dir(name) != path.Clean(dir) {
		err = fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("snapshot: install %s in %s: %w", name, dir, err)
	}
	return &Reader{layout: l, f: f, name: path.Join(dir, Name)}, nil
}

// present is the snapshot that is to be replaced.
type present struct {
	exists bool
	meta   Meta // zero if it cannot be read
}

// mayReplace finds out whether a snapshot may take the place of dir's present one.
func mayReplace(fsys disk.FS, dir string, m Meta) (present, error) {
	name := path.Join(dir, Name)
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return present{}, nil
	}
	if err != nil {
		return present{}, fmt.Errorf("read the current snapshot: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return present{}, fmt.Errorf("read the current snapshot: %w", err)
	}
	old, err := fileScanner(f, size, section{}).meta()
	switch {
	case errors.Is(err, ErrCorrupt):
		// A good one is the remedy; the damaged one stays as a backup.
		return present{exists: true}, nil
	case err != nil:
		return present{}, fmt.Errorf("read the current snapshot %s: %w", name, err)
	case old.Cluster != m.Cluster:
		return present{}, fmt.Errorf("%w: %q, not %q", ErrOtherCluster, m.Cluster, old.Cluster)
	case old.Index > m.Index:
		return present{}, fmt.Errorf("%w: index %d, not %d", ErrOlder, m.Index, old.Index)
	}
	return present{exists: true, meta: old}, nil
}

// replace makes the file of that name, which is durable, the newest snapshot. At no instant
// is there none.
func replace(fs disk.FS, dir, name string, m Meta) error {
	old, err := mayReplace(fs, dir, m)
	if err != nil {
		return err
	}
	if old.exists {
		if err := backup(fs, dir, old.meta, m); err != nil {
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

// backup gives the present snapshot a second name, of when it was created, or of when the
// new one was if that cannot be told.
func backup(fsys disk.FS, dir string, old, m Meta) error {
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
		// Or a power loss might keep the rename and not the link.
		return fsys.SyncDir(dir)
	}
}
