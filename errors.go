package leaderelection

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Errors returned by this package, to be tested with errors.Is. Errors that were caused by
// ZooKeeper wrap the error of the client library, and name the server, its error code and what to
// do: see docs/servers.md.
var (
	// ErrInvalid is returned if an argument is invalid: the connection is nil, the path is the root
	// or not accepted by ZooKeeper, or the value of an option, or an operation of
	// [Leadership.Multi], is invalid. Nothing was changed. The text says what is wrong.
	ErrInvalid = connection.ErrInvalid
	// ErrConnClosed is returned if the owner of the connection has closed it. It ends a
	// candidacy. ZooKeeper removes the candidate's znode when the session ends.
	ErrConnClosed = connection.ErrConnClosed
	// ErrUnreachable is returned if no server has answered for a session timeout.
	// It ends a candidacy only before the candidate has joined the election, and not with
	// [WithRejoin]. A candidate that has joined waits for the connection.
	ErrUnreachable = connection.ErrUnreachable
	// ErrNoElection is returned if the election node does not exist. It ends a candidacy if, in a
	// new session, the election node does not exist or was re-created. Either the servers have
	// lost their data (see docs/servers.md), or a client has deleted the node in the meantime. A
	// candidate with both [WithCreateNode] and [WithRejoin] continues instead, and creates the
	// node if necessary.
	ErrNoElection = errors.New("election does not exist")
	// ErrPermission is returned if the backend rejects a request: on ZooKeeper because of an ACL, because the
	// connection is not authenticated, or because a quota is exceeded; with [WithStrictACL] also if
	// the ACL of the node permits other clients to change it.
	ErrPermission = connection.ErrPermission
	// ErrAlreadyStarted is returned if ElectLeader is called a second time. Create a new
	// candidate to join again.
	ErrAlreadyStarted = errors.New("candidate was started before")
	// ErrNotLeader is returned if the candidate is not the leader. Nothing was applied.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnconfirmed is returned if it is unknown whether the backend has executed a request.
	// The documentation of the method describes what happens next.
	ErrUnconfirmed = connection.ErrUnconfirmed
	// ErrForeignChildren is returned if an election cannot be deleted because its node has
	// children that are not candidates. Nothing was changed, unless such a child was created
	// during the deletion; the error text distinguishes the two cases. It ends a candidacy if
	// another ephemeral child has the same sequence number as the candidate, so that their
	// order is unknown: one of them was not created as a sequential znode. The error names both.
	ErrForeignChildren = errors.New("election node has children that are not candidates")

	// ErrNodeExhausted ends a new candidacy if the election node has had 2147483647
	// children: ZooKeeper's sequence numbers are exhausted and do not give the order of
	// further candidates. Candidates that have joined before are not affected. To continue,
	// delete the election node, for instance with [DeleteElection], and create it again.
	ErrNodeExhausted = connection.ErrNodeExhausted

	// ErrTooLarge is returned if a reply, usually the list of candidates, is larger than
	// the connection's receive buffer, which zk.WithMaxBufferSize limits. By default it is
	// unlimited, and on connections of package zkdial larger than any reply. The error names
	// the znode. It ends a candidacy.
	ErrTooLarge = connection.ErrTooLarge

	// ErrElectionOver ends a candidacy if the election was ended for all candidates.
	ErrElectionOver = connection.ErrElectionOver
	// ErrDeleted indicates that another client has deleted the candidate's znode.
	// If it is the error of a final status, the election continues without this candidate.
	// If it is the error of a Leadership, it can also be the first indication that the
	// election was ended or that the connection was closed.
	ErrDeleted = connection.ErrDeleted
	// ErrSessionExpired indicates that the ZooKeeper session has expired. The error also wraps
	// zkdial.ErrDataLost if the servers are known to have lost their data.
	ErrSessionExpired = connection.ErrSessionExpired
	// ErrLeaseExpired indicates that leadership could not be confirmed in time. The
	// candidate may become leader again.
	ErrLeaseExpired = connection.ErrLeaseExpired
	// ErrResigned indicates that the candidate has resigned.
	ErrResigned = errors.New("candidate has resigned")
	// ErrNotTransferred is returned if a leadership was not transferred to the candidate that was to lead.
	ErrNotTransferred = errors.New("the candidate did not take over")
)

// refine wraps an error of the client library or of package contender by the error above that
// describes it. It returns other errors unchanged.
func refine(err error) error {
	if errors.Is(err, connection.ErrAmbiguous) && !errors.Is(err, ErrForeignChildren) {
		return fmt.Errorf("%w: %w", ErrForeignChildren, err)
	}
	return connection.Refine(nil, err)
}
