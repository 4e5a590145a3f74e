package filelog

// What can be wrong with a log.

import (
	"errors"
	"fmt"
)

// The errors, for errors.Is. Entries and Term return raft's own ErrCompacted and
// ErrUnavailable besides.
var (
	// ErrCorrupt: the log is not as it was written. It says where and what to do; the log
	// is not usable.
	ErrCorrupt = errors.New("filelog: the log is damaged")
	// ErrTruncatesCommitted: the entries would replace ones that are committed. Nothing was
	// written.
	ErrTruncatesCommitted = errors.New("filelog: refused to replace committed entries")
	// ErrInvalid: what was given cannot be of a raft log that goes on from this one. Nothing
	// was written.
	ErrInvalid = errors.New("filelog: invalid")
	// ErrNoSpace: the disk has no space for the next segment, and the rest of the present one is
	// kept for hard states and compaction marks. Nothing was written, and the log takes entries
	// again when there is space.
	ErrNoSpace = errors.New("filelog: no space for the next segment")
	// ErrReadOnly: the log was opened to read only.
	ErrReadOnly = errors.New("filelog: opened read-only")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("filelog: closed")
)

func corrupt(file string, off int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s, offset %d: %s; nothing was changed. A peer that has lost what it "+
		"has acknowledged endangers the cluster: delete the data of this peer and let it join under a new ID",
		ErrCorrupt, file, off, fmt.Sprintf(format, args...))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s; nothing was written", ErrInvalid, fmt.Sprintf(format, args...))
}
