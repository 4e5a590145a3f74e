package disk

import (
	"errors"
	"io"
	"io/fs"
	"path"
)

// Replace makes a file with that content, durably, in place of the one that may have that name.
// Whatever fails, the file is the old one or the new one as a whole. One goroutine at a time may
// replace a file. A file name+".tmp" is used for that.
func Replace(fsys FS, name string, content []byte) error {
	temporary := name + ".tmp"
	if err := fsys.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(temporary, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// maxSmall is the size up to which ReadSmall reads a file, in bytes.
const maxSmall = 1 << 20

// ReadSmall returns what a small file holds. The error wraps io/fs.ErrNotExist if there is none.
func ReadSmall(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, min(size, maxSmall)))
}
