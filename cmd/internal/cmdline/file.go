package cmdline

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// ReadFile reads a regular file or a link to one. Unlike ReadPrivate, it does not check the mode of the
// file.
func ReadFile(name string) ([]byte, error) {
	f, _, err := openFile(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadLimited(f, name, maxSize)
}

// maxSize is the maximum size of a file of settings or credentials, in bytes. The certificates of all
// public authorities have a quarter of a megabyte. These files are read again when they change, so an
// operator's mistake must not use up the memory of a process that runs.
const maxSize = 4 << 20

// ReadLimited reads r until its end. It returns an error that contains name if there are more than limit
// bytes.
func ReadLimited(r io.Reader, name string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, err
}

// openFile opens a regular file or a link to one. It rejects other files, such as a named pipe, because the command
// would wait until another process writes to the pipe. If once is true, openFile also accepts files that the user has
// opened for this process: /dev/stdin, and /dev/fd/N, by which a shell passes the output of <(program). Such files
// can be read only once.
func openFile(name string, once bool) (*os.File, fs.FileInfo, error) {
	// O_NONBLOCK, because opening a named pipe can otherwise block.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !(once && isOpened(name)) {
		err = fmt.Errorf("%s is not a regular file, and reading it could block: use a regular file, or a link to one", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// isOpened reports whether a name refers to a file that this process has inherited as an open descriptor, or to the
// null device.
func isOpened(name string) bool {
	return name == "/dev/stdin" || name == os.DevNull || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}
