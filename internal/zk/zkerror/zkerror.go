// Package zkerror holds the errors that elections and recipes on ZooKeeper have in common. The
// packages for users export each of them, with its documentation.
package zkerror

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

var (
	ErrInvalid        = errors.New("invalid argument")
	ErrConnClosed     = errors.New("connection is closed")
	ErrUnreachable    = errors.New("ZooKeeper does not answer")
	ErrPermission     = errors.New("not permitted")
	ErrUnconfirmed    = errors.New("not confirmed by the servers")
	ErrDataLost       = errors.New("the ZooKeeper servers have lost their data")
	ErrElectionOver   = errors.New("election is over")
	ErrNodeExhausted  = errors.New("sequence numbers of the node are exhausted")
	ErrAmbiguous      = errors.New("two candidates have the same sequence number")
	ErrDeleted        = errors.New("znode was deleted by another client")
	ErrSessionExpired = errors.New("session expired")
	ErrLeaseExpired   = errors.New("lease expired: it was not confirmed in time")

	// ErrTooLarge means that a reply is larger than the receive buffer of the connection, which
	// zk.WithMaxBufferSize limits. The client library closes the connection when it receives
	// such a reply, so that the request appears to have failed with the connection, and would
	// do so each time that it is repeated. Recipes also return it for a request that is larger
	// than servers accept.
	ErrTooLarge = errors.New("request or reply is too large")
)

// ErrNilConn is the error if the connection is nil.
var ErrNilConn = fmt.Errorf("%w: the connection is nil", ErrInvalid)

// Refine returns err with the meaning of its code to users: see Rejection. Errors that have none, or
// that have it already, are returned unchanged.
func Refine(err error) error {
	if errors.Is(err, zk.ErrInvalidPath) && !errors.Is(err, ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Reject(err, func() string { return "" })
}
