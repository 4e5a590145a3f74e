// Package sentinel holds the errors that elections and recipes have in common,
// each of which is exported, with its documentation, by the packages for users,
// and gives what the parts below return its place among them.
package sentinel

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/session"
)

var (
	ErrNilConn        = errors.New("connection is nil")
	ErrConnClosed     = errors.New("connection is closed")
	ErrUnreachable    = errors.New("ZooKeeper does not answer")
	ErrInvalidPath    = errors.New("invalid path")
	ErrInvalidOption  = errors.New("invalid option")
	ErrPermission     = errors.New("not permitted")
	ErrUnconfirmed    = errors.New("not confirmed by the servers")
	ErrElectionGone   = errors.New("election node does not exist in the new session")
	ErrDataLost       = errors.New("the ZooKeeper servers have lost their data")
	ErrElectionOver   = errors.New("election is over")
	ErrNodeExhausted  = errors.New("sequence numbers of the node are exhausted")
	ErrTooLarge       = request.ErrTooLarge
	ErrAmbiguous      = errors.New("two candidates have the same sequence number")
	ErrDeleted        = errors.New("znode was deleted by another client")
	ErrSessionExpired = errors.New("session expired")
	ErrLeaseExpired   = errors.New("lease expired: it was not confirmed in time")
)

// refinements give the errors of the parts below their places among the errors
// above. Those of this module's own parts have nothing to add to them.
var refinements = []struct {
	cause, as error
	own       bool
}{
	{line.ErrEnded, ErrElectionOver, true},
	{line.ErrDeleted, ErrDeleted, true},
	{session.ErrMissing, ErrDeleted, true},
	{line.ErrSessionExpired, ErrSessionExpired, true},
	{session.ErrOtherSession, ErrSessionExpired, true},
	{line.ErrUnreachable, ErrUnreachable, true},
	{line.ErrExhausted, ErrNodeExhausted, true},
	{line.ErrAmbiguous, ErrAmbiguous, false},
	{request.ErrClosed, ErrConnClosed, true},
	{zk.ErrNoAuth, ErrPermission, false},
	{zk.ErrAuthFailed, ErrPermission, false},
	{zk.ErrInvalidACL, ErrPermission, false},
	{zk.ErrInvalidPath, ErrInvalidPath, false},
}

// Refine returns err as, or wrapped by, the error above that says what it means
// to a user; as it is where there is none.
func Refine(err error) error {
	if err == nil {
		return nil
	}
	for _, r := range refinements {
		switch {
		case errors.Is(err, r.as):
			return err
		case r.own && err == r.cause: // nothing is wrapped
			return r.as
		case errors.Is(err, r.cause):
			return fmt.Errorf("%w: %w", r.as, err)
		}
	}
	return err
}
