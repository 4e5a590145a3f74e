package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// These are the modes of new directories and files. Only the user who runs the peer may read the
// updates in the files.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// OS returns the files below the directory root as an FS. If the directory does not exist, the caller must
// first create it by MkdirAll("."), which also makes the name of the directory durable.
func OS(root string) FS { return osFS{root, syncDir} }

type osFS struct {
	root string
	sync func(dir string) error // syncs a directory: the function syncDir, except in tests
}

// path returns the path in the machine's file system of a file in this FS. It rejects names that lead
// out of the root.
func (o osFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(o.root, filepath.FromSlash(name)), nil
}

// MkdirAll implements [FS]. It makes the name of each directory that it creates durable by syncing the parent,
// because callers cannot sync the parent of the root by SyncDir.
func (o osFS) MkdirAll(dir string) error {
	p, err := o.path("mkdir", dir)
	if err != nil {
		return err
	}
	var parents []string
	for d, parent := p, filepath.Dir(p); d != parent; d, parent = parent, filepath.Dir(parent) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break // d exists, or Stat failed for a reason that os.MkdirAll below reports
		}
		parents = append(parents, parent)
	}
	if err := os.MkdirAll(p, dirMode); err != nil {
		return err
	}
	for _, d := range parents {
		if err := o.sync(d); err != nil {
			return err
		}
	}
	return nil
}

func (o osFS) open(name string, flag int) (File, error) {
	p, err := o.path("open", name)
	if err != nil {
		return nil, err
	}
	// Without O_NONBLOCK, opening a named pipe would block until another process opens the pipe.
	f, err := os.OpenFile(p, flag|syscall.O_NONBLOCK, fileMode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: p, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osFile{f}, nil
}

func (o osFS) Create(name string) (File, error) {
	return o.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (o osFS) Open(name string) (File, error) { return o.open(name, os.O_RDWR) }

func (o osFS) OpenRead(name string) (File, error) { return o.open(name, os.O_RDONLY) }

func (o osFS) withPaths(op, from, to string, operation func(from, to string) error) error {
	f, err := o.path(op, from)
	if err != nil {
		return err
	}
	t, err := o.path(op, to)
	if err != nil {
		return err
	}
	return operation(f, t)
}

func (o osFS) Rename(from, to string) error { return o.withPaths("rename", from, to, os.Rename) }

func (o osFS) Link(from, to string) error { return o.withPaths("link", from, to, os.Link) }

func (o osFS) Remove(name string) error {
	p, err := o.path("remove", name)
	if err != nil {
		return err
	}
	return os.Remove(p)
}

func (o osFS) List(dir string) ([]string, error) {
	p, err := o.path("list", dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p) // ReadDir sorts the entries
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (o osFS) SyncDir(dir string) error {
	p, err := o.path("sync", dir)
	if err != nil {
		return err
	}
	return o.sync(p)
}

func (o osFS) Lock(name string) (io.Closer, error) {
	p, err := o.path("lock", name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("disk: lock of %s: %w", p, err), f.Close())
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (f osFile) Allocate(size int64) error {
	if err := allocate(f.File, size); err != nil {
		return &fs.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	// Extend the file here if allocate has not: some systems cannot reserve space.
	has, err := f.Size()
	if err != nil || has >= size {
		return err
	}
	return f.Truncate(size)
}

func (f osFile) Sync() error {
	if err := datasync(f.File); err != nil {
		return &fs.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	return nil
}
