package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Replace gives a file the given content, and creates the file if it does not exist. The content is
// durable when Replace returns. After an error or a crash, the file has either the old or the new
// content. Only one goroutine at a time may replace a file. Replace uses the file name+".tmp"
// temporarily. The error wraps [ErrTooLarge] if ReadSmall could not read the file.
func Replace(fsys FS, name string, content []byte) error {
	if err := checkSmall(name, int64(len(content))); err != nil {
		return err
	}
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

// maxSmall is the maximum size in bytes of the files of Replace and ReadSmall. It limits the memory
// that reading a damaged file can use. It suffices for more than 100,000 peers with usual IDs.
const maxSmall = 64 << 20

// ErrTooLarge is wrapped by the errors of Replace and ReadSmall for files of more than 64 MiB.
var ErrTooLarge = errors.New("disk: the file is too large")

func checkSmall(name string, size int64) error {
	if size > maxSmall {
		return fmt.Errorf("%w: %s has %d bytes, and the limit is %d", ErrTooLarge, name, size, maxSmall)
	}
	return nil
}

// ReadSmall returns the content of a file that Replace has written. The error wraps io/fs.ErrNotExist
// if the file does not exist, and [ErrTooLarge] if it has more than 64 MiB.
func ReadSmall(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err == nil {
		err = checkSmall(name, size)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}
