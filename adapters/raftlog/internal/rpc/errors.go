package rpc

// Errors across a connection: which of the package api's they are, the leader that they
// name, and their text.

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// ErrLost: the connection has ended, and with it the calls on it. Unless such an error is
// [api.ErrUnknownOutcome] as well, the request was certainly not sent, or is one that
// changes nothing.
var ErrLost = errors.New("connection lost")

// unknown says of a write that it may have been done.
func unknown(err error) error {
	if errors.Is(err, api.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", api.ErrUnknownOutcome, err)
}
