// Package disk defines the operations on files that a raft log uses. The log is stored in the file
// system of the machine, and in tests on a disk in memory that can crash at any operation (package
// testenv).
package disk

import (
	"errors"
	"io"
	"runtime"
	"syscall"
)

// IsFull reports whether an operation failed because the disk is full, or the quota of the user is used up.
func IsFull(err error) bool {
	// The error numbers of Windows, which does not use ENOSPC.
	const handleDiskFull, diskFull, quotaExceeded = syscall.Errno(39), syscall.Errno(112), syscall.Errno(1295)
	windows := runtime.GOOS == "windows" && (errors.Is(err, handleDiskFull) || errors.Is(err, diskFull) || errors.Is(err, quotaExceeded))
	return windows || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ErrLocked is returned by FS.Lock if this or another process holds the lock.
var ErrLocked = errors.New("disk: locked by another process")

// FS is a tree of files. Names are slash-separated and relative to the root of the FS, which is ".".
// Errors wrap [io/fs.ErrNotExist] or [io/fs.ErrExist] if these apply. The methods may be called by
// any goroutine.
//
// A power failure can undo changes of a directory, by which a name was created, renamed or removed,
// unless SyncDir was called after them. File.Sync makes the content of a file durable.
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
	// Rename renames a file, and atomically replaces the file that has the new name.
	Rename(from, to string) error
	// Link gives a file a second name. The error wraps fs.ErrExist if the name exists.
	Link(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// SyncDir returns when the names in a directory are durable.
	SyncDir(dir string) error
	// Lock acquires a lock, which excludes other processes and other users in this process. It
	// is held until it is closed or the process ends. Lock does not wait: it returns ErrLocked
	// if the lock is held. The lock is a file with this name, which is not removed.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Any number of goroutines may read concurrently, and one may write.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Size returns the length of the file in bytes.
	Size() (int64, error)
	// Truncate sets the length. Bytes that are added are zero.
	Truncate(size int64) error
	// Allocate reserves space for a file of this length, so that later writes do not fail
	// because the disk is full. If the file is shorter, it is extended by zeros. On systems
	// that cannot reserve space, it is only extended.
	Allocate(size int64) error
	// Sync returns when the content of the file and its length are durable. After an error it
	// is unknown which writes since the last Sync are durable, and another Sync does not
	// change that.
	Sync() error
	// Close closes the file, without a Sync.
	Close() error
}
