package leaderelection

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
)

// The errors of this package, for errors.Is. Those that ZooKeeper has caused
// wrap what the client library returned.
var (
	// ErrNilConn: no connection was passed in.
	ErrNilConn = errors.New("leaderelection: connection is nil")
	// ErrConnClosed: the owner of the connection has closed it. It ends a
	// candidacy. The session's end removes what the candidate has created.
	ErrConnClosed = errors.New("leaderelection: connection is closed")
	// ErrUnreachable: no ZooKeeper server has answered for a session timeout.
	// It ends a candidacy only before the candidate stands in line, and not
	// that of one that rejoins; later a candidate waits for the connection.
	ErrUnreachable = errors.New("leaderelection: ZooKeeper does not answer")
	// ErrInvalidPath: the path of the election node is not one that ZooKeeper
	// accepts, or is the root.
	ErrInvalidPath = errors.New("leaderelection: invalid path")
	// ErrInvalidOption: an option has a value that cannot work.
	ErrInvalidOption = errors.New("leaderelection: invalid option")
	// ErrNoElection: the election node does not exist.
	ErrNoElection = errors.New("leaderelection: election node does not exist")
	// ErrPermission: ZooKeeper refuses the request, by an ACL or because the
	// connection is not authenticated as it needs to be.
	ErrPermission = errors.New("leaderelection: not permitted")
	// ErrAlreadyStarted: ElectLeader was called a second time.
	ErrAlreadyStarted = errors.New("leaderelection: candidate takes part already")
	// ErrCandidacyOver: the candidacy is over and cannot be taken up again;
	// make a new candidate.
	ErrCandidacyOver = errors.New("leaderelection: candidacy is over")
	// ErrNotLeader: the candidate does not lead; nothing was applied.
	ErrNotLeader = errors.New("leaderelection: not the leader")
	// ErrUnconfirmed: it is not known whether ZooKeeper has carried out what
	// was asked. The method says what happens then.
	ErrUnconfirmed = errors.New("leaderelection: not confirmed by ZooKeeper")
	// ErrForeignChildren: the election node has children that are no
	// candidates. Nothing was changed, unless one was created meanwhile; the
	// error's text tells.
	ErrForeignChildren = errors.New("leaderelection: election node has children that are no candidates")

	// ErrElectionOver: the election was ended for all candidates.
	ErrElectionOver = errors.New("leaderelection: election is over")
	// ErrCandidateDeleted: somebody has deleted the candidate's znode. As a
	// final status's error it says that the election goes on without this
	// candidate; as the end of a Leadership it is also the first sign of an
	// election's end, or of a connection's that was closed.
	ErrCandidateDeleted = errors.New("leaderelection: candidate was deleted")
	// ErrSessionExpired: the ZooKeeper session is over.
	ErrSessionExpired = errors.New("leaderelection: session expired")
	// ErrLeaseExpired: leadership could not be proven any longer. It may still
	// be regained.
	ErrLeaseExpired = errors.New("leaderelection: leadership cannot be proven")
	// ErrResigned: the candidate has resigned.
	ErrResigned = errors.New("leaderelection: candidate has resigned")
)

// refinements give the errors of the parts below their places among the errors
// above. Those of this module's own parts have nothing to add to them.
var refinements = []struct {
	cause, as error
	own       bool
}{
	{line.ErrEnded, ErrElectionOver, true},
	{line.ErrDeleted, ErrCandidateDeleted, true},
	{line.ErrSessionExpired, ErrSessionExpired, true},
	{line.ErrUnreachable, ErrUnreachable, true},
	{request.ErrClosed, ErrConnClosed, true},
	{zk.ErrNoAuth, ErrPermission, false},
	{zk.ErrAuthFailed, ErrPermission, false},
	{zk.ErrInvalidACL, ErrPermission, false},
	{zk.ErrInvalidPath, ErrInvalidPath, false},
}

func refine(err error) error {
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
	return fmt.Errorf("leaderelection: %w", err)
}
