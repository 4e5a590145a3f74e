package rpc

// Errors across a connection: which of the package api's they are, the leader that they
// name, and their text.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
)

// ErrLost: the connection has ended, and with it the calls on it. Unless such an error is
// [api.ErrUnknownOutcome] as well, the request was certainly not sent, or is one that
// changes nothing.
var ErrLost = errors.New("raftlog: connection is lost")

// sentinels have their places in a message: new ones are appended.
var sentinels = [...]error{
	api.ErrNotLeader, api.ErrUnknownOutcome, api.ErrStale, api.ErrFuture, api.ErrRequestIDReused,
	api.ErrBusy, api.ErrTooManyIDs, api.ErrTooLarge, api.ErrInvalid, api.ErrChanging,
	api.ErrCompacted, api.ErrClosed, api.ErrFault, api.ErrRefused,
}

// remoteError is an error of the other side.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

func appendError(b []byte, err error) []byte {
	var bits uint64
	for i, s := range sentinels {
		if errors.Is(err, s) {
			bits |= 1 << i
		}
	}
	var leader api.Peer
	if not, ok := errors.AsType[*api.NotLeaderError](err); ok && checkPeers([]api.Peer{not.Leader}) == nil {
		leader = not.Leader
	}
	return appendString(appendPeer(binary.AppendUvarint(b, bits), leader), cut(err.Error(), maxText))
}

// decodeError returns the error that a message brings, and whether there is one in it.
func decodeError(body []byte) (remote, err error) {
	d := decoder{b: body}
	bits := d.uint("kind of error", 1<<len(sentinels)-1)
	leader := d.peer()
	text := d.string("text of an error", maxText)
	if err := d.end(); err != nil {
		return nil, err
	}
	e := &remoteError{text: text}
	for i, s := range sentinels {
		if bits&(1<<i) == 0 {
			continue
		}
		if s == api.ErrNotLeader {
			s = &api.NotLeaderError{Leader: leader}
		}
		e.is = append(e.is, s)
	}
	return e, nil
}

// unknown says of a write that it may have been done.
func unknown(err error) error {
	if errors.Is(err, api.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", api.ErrUnknownOutcome, err)
}
