package filelog

import (
	"errors"
	"fmt"
)

// These are the errors of this package. Entries and Term also return raft.ErrCompacted and
// raft.ErrUnavailable.
var (
	// ErrCorrupt is returned if the log is damaged. The text of the error contains the position of the
	// damage and a remedy. The damaged log cannot be used.
	ErrCorrupt = errors.New("filelog: the log is damaged")
	// ErrTruncatesCommitted is returned if a call would replace committed entries. The call has written
	// nothing.
	ErrTruncatesCommitted = errors.New("filelog: refused to replace committed entries")
	// ErrInvalid is returned if the arguments of a call contradict the content of the log. The call has
	// written nothing.
	ErrInvalid = errors.New("filelog: invalid argument")
	// ErrNoSpace is returned if the disk has no space for the next segment, and the rest of the active
	// segment is reserved for hard states and compaction marks. The call has written nothing. The log
	// accepts entries again when the disk has space.
	ErrNoSpace = errors.New("filelog: no space for the next segment")
	// ErrReadOnly is returned by all methods that would change a log which was opened with
	// Options.ReadOnly.
	ErrReadOnly = errors.New("filelog: opened read-only")
	// ErrClosed is returned by all methods after Close.
	ErrClosed = errors.New("filelog: the log is closed")
)

func corrupt(file string, offset int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s, offset %d: %s; nothing was changed. A peer that has lost what it "+
		"has acknowledged endangers the cluster: delete the data of this peer and let it join under a new ID",
		ErrCorrupt, file, offset, fmt.Sprintf(format, args...))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s; nothing was written", ErrInvalid, fmt.Sprintf(format, args...))
}
