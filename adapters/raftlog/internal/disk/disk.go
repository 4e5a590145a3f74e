// Package disk defines the operations on files that a Raft log uses. The log is stored in the file
// system of the machine, and in tests on a disk in memory that can crash in any operation (package
// testenv).
package disk

import (
	"errors"
	"io"
	"runtime"
	"syscall"
)

// IsFull reports whether an operation failed because the disk is full, or the user's disk quota is used
// up.
func IsFull(err error) bool {
	// These are the error numbers of Windows, which does not return ENOSPC.
	const handleDiskFull, diskFull, quotaExceeded = syscall.Errno(39), syscall.Errno(112), syscall.Errno(1295)
	windows := runtime.GOOS == "windows" && (errors.Is(err, handleDiskFull) || errors.Is(err, diskFull) || errors.Is(err, quotaExceeded))
	return windows || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ErrLocked is returned by FS.Lock if another process, or another caller in this process, holds the lock.
var ErrLocked = errors.New("disk: locked by another process")

// FS is a tree of files. Names are slash-separated and relative to the root of the FS, which is ".".
// Errors wrap [io/fs.ErrNotExist] or [io/fs.ErrExist] if the file does not exist, or exists already.
// Any goroutine may call the methods.
//
// A power failure can undo the creation, renaming or removal of a name in a directory, unless SyncDir
// was called for the directory afterwards. File.Sync makes the content of a file durable.
type FS interface {
	// MkdirAll creates a directory and its parents, unless they exist.
	MkdirAll(dir string) error
	// Create creates a file and opens it for reading and writing. The error wraps fs.ErrExist
	// if the file exists.
	Create(name string) (File, error)
	// Open opens a file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens a file for reading. Writes to it fail.
	OpenRead(name string) (File, error)
	// Rename renames a file. If a file with the new name exists, Rename replaces it atomically.
	Rename(from, to string) error
	// Link gives a file a second name. The error wraps fs.ErrExist if the second name exists.
	Link(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// SyncDir makes the names in a directory durable, and returns when they are.
	SyncDir(dir string) error
	// Lock acquires a lock, which excludes other processes and other callers in this process. The lock is held
	// until the result is closed or the process ends. Lock does not wait: it returns ErrLocked if the lock is
	// held. The lock is a file with the given name, which is not removed.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Any number of goroutines may read from a File concurrently, while at most one
// writes.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Size returns the length of the file in bytes.
	Size() (int64, error)
	// Truncate sets the length of the file. If the file becomes longer, the added bytes are zero.
	Truncate(size int64) error
	// Allocate reserves space for a file of this length, so that later writes do not fail because the
	// disk is full. It extends a shorter file by zeros. On systems that cannot reserve space, Allocate
	// only extends the file.
	Allocate(size int64) error
	// Sync makes the content of the file and its length durable, and returns when they are. After an error it
	// is unknown which writes since the last successful Sync are durable, and another Sync that succeeds does
	// not change that.
	Sync() error
	// Close closes the file, and does not sync it.
	Close() error
}
