package wire

import (
	"encoding/binary"
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// sentinels are the errors that messages can contain. The position of an error in the list is a part of
// the protocol: append new errors at the end.
var sentinels = [...]error{
	api.ErrNotLeader, api.ErrUnknownOutcome, api.ErrStale, api.ErrFuture, api.ErrRequestIDReused,
	api.ErrBusy, api.ErrTooManyIDs, api.ErrTooLarge, api.ErrInvalid, api.ErrChanging,
	api.ErrCompacted, api.ErrClosed, api.ErrFault, api.ErrRefused, api.ErrFenced, api.ErrNoSpace, api.ErrNoCandidate,
}

const allErrors = 1<<len(sentinels) - 1

// errorBits returns the set of those sentinels that err wraps, as bits by their positions.
func errorBits(err error) (bits uint64) {
	for i, s := range sentinels {
		if errors.Is(err, s) {
			bits |= 1 << i
		}
	}
	return bits
}

// IsKnown reports whether err wraps one of the errors of package api that messages can contain.
func IsKnown(err error) bool { return errorBits(err) != 0 }

// AppendError appends the encoding of an error: the errors of package api that err wraps, the leader of
// an api.NotLeaderError, and the text.
func AppendError(b []byte, err error) []byte {
	var leader api.Peer
	if not, ok := errors.AsType[*api.NotLeaderError](err); ok && CheckPeers(not.Leader) == nil {
		leader = not.Leader
	}
	return AppendString(AppendPeer(binary.AppendUvarint(b, errorBits(err)), leader), Cut(err.Error(), MaxText))
}

// remoteError is an error that another process has sent in a message.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

// Error decodes an error and removes it from the message. The result is not nil if d.Err is nil.
func (d *Decoder) Error() error {
	bits, leader := d.Uint("kind of an error", allErrors), d.Peer()
	e := &remoteError{text: d.String("text of an error", MaxText)}
	if d.Err != nil {
		return nil
	}
	for i, s := range sentinels {
		if bits&(1<<i) == 0 {
			continue
		}
		if s == api.ErrNotLeader {
			s = &api.NotLeaderError{Leader: leader}
		}
		e.is = append(e.is, s)
	}
	return e
}
