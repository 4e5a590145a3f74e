package api

import "errors"

// sentinels have their places in the messages of peers and of clients: new ones are appended.
var sentinels = [...]error{
	ErrNotLeader, ErrUnknownOutcome, ErrStale, ErrFuture, ErrRequestIDReused,
	ErrBusy, ErrTooManyIDs, ErrTooLarge, ErrInvalid, ErrChanging,
	ErrCompacted, ErrClosed, ErrFault, ErrRefused, ErrFenced, ErrNoSpace, ErrNoCandidate,
}

// AllErrors are the bits of all errors that can be told to another process.
const AllErrors = 1<<len(sentinels) - 1

// ErrorBits tells which errors of this package err is, for a message.
func ErrorBits(err error) (bits uint64) {
	for i, s := range sentinels {
		if errors.Is(err, s) {
			bits |= 1 << i
		}
	}
	return bits
}

// remoteError is an error of the other side.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

// RemoteError is the error that a message tells of by its bits, and by text. With the bit of
// ErrNotLeader it is a NotLeaderError that names leader.
func RemoteError(bits uint64, leader Peer, text string) error {
	e := &remoteError{text: text}
	for i, s := range sentinels {
		if bits&(1<<i) == 0 {
			continue
		}
		if s == ErrNotLeader {
			s = &NotLeaderError{Leader: leader}
		}
		e.is = append(e.is, s)
	}
	return e
}
