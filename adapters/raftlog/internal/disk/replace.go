package disk

import (
	"errors"
	"io"
	"io/fs"
	"path"
)

// Replace replaces a file, or creates it, with the given content. The file is durable when Replace
// returns. After an error or a crash, it has either the old or the new content. Only one goroutine
// at a time may replace a file. The file name+".tmp" is used temporarily.
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

// maxSmall is the maximum number of bytes that ReadSmall returns.
const maxSmall = 1 << 20

// ReadSmall returns the content of a file, at most 1 MiB. The error wraps io/fs.ErrNotExist if the
// file does not exist.
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
