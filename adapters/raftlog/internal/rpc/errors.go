package rpc

// Errors across a connection: which of the package api's they are, the leader that they
// name, and their text.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// ErrLost: the connection has ended, and with it the calls on it. Unless such an error is
// [api.ErrUnknownOutcome] as well, the request was certainly not sent, or is one that
// changes nothing.
var ErrLost = errors.New("connection lost")

func appendError(b []byte, err error) []byte {
	var leader api.Peer
	if not, ok := errors.AsType[*api.NotLeaderError](err); ok && checkPeers([]api.Peer{not.Leader}) == nil {
		leader = not.Leader
	}
	return appendString(appendPeer(binary.AppendUvarint(b, api.ErrorBits(err)), leader), cut(err.Error(), maxText))
}

// decodeError returns the error that a message brings, and whether there is one in it.
func decodeError(body []byte) (remote, err error) {
	d := decoder{b: body}
	bits := d.uint("kind of error", api.AllErrors)
	leader := d.peer()
	text := d.string("text of an error", maxText)
	if err := d.end(); err != nil {
		return nil, err
	}
	return api.RemoteError(bits, leader, text), nil
}

// unknown says of a write that it may have been done.
func unknown(err error) error {
	if errors.Is(err, api.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", api.ErrUnknownOutcome, err)
}
