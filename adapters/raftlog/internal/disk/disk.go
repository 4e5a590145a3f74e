// Package disk is what a raft log needs of a file system, and no more: so that the same log
// runs on the machine's disk, and in tests on one whose power fails at any operation (package
// crashdisk).
package disk

import (
	"errors"
	"io"
)

// ErrLocked: somebody else, in this process or another, holds the lock.
var ErrLocked = errors.New("disk: locked by another process")

// FS is a tree of files. Names are slash-separated and relative to the root that the FS was
// made for; "." is the root. Errors are [io/fs.ErrNotExist] and [io/fs.ErrExist] where these
// fit. Any goroutine may call.
//
// What has no SyncDir of its directory after it, a power loss may undo: an entry that was
// made, renamed or removed. What a file holds is as durable as its own Sync has made it.
type FS interface {
	// MkdirAll makes a directory, and those above it, unless they are there.
	MkdirAll(dir string) error
	// Create makes a file, to read and to write; it fails if there is one (fs.ErrExist).
	Create(name string) (File, error)
	// Open opens a file to read and to write.
	Open(name string) (File, error)
	// OpenRead opens a file to read only: its writes fail.
	OpenRead(name string) (File, error)
	// Rename gives a file another name, in place of whatever file has that, at once.
	Rename(from, to string) error
	// Link gives a file one more name, which must be free.
	Link(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// SyncDir makes the entries of a directory durable. It returns when they are.
	SyncDir(dir string) error
	// Lock takes a lock that one holder has at a time, among all processes and within this
	// one, until it is closed or the process has ended. It does not wait: ErrLocked if it is
	// taken. The lock is a file of that name, which stays.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Any number of goroutines may read at the same time, and one write.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Size is the file's length in bytes.
	Size() (int64, error)
	// Truncate sets the length; what is new reads as zeros.
	Truncate(size int64) error
	// Allocate makes room on the disk for a file of that length, so that later writes there
	// do not run out of space. The length grows if it is less; what is new reads as zeros.
	// Where a system cannot reserve, only the length grows.
	Allocate(size int64) error
	// Sync returns when what the file holds, and its length, are durable. After an error
	// nothing is known of what was written since the last Sync; another Sync does not help.
	Sync() error
	// Close closes the file. It does not sync.
	Close() error
}
