package leaderelection

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/internal/sentinel"
)

// The errors of this package, for errors.Is. Those that ZooKeeper has caused
// wrap what the client library returned.
var (
	// ErrNilConn: no connection was passed in.
	ErrNilConn = sentinel.ErrNilConn
	// ErrConnClosed: the owner of the connection has closed it. It ends a
	// candidacy. The session's end removes what the candidate has created.
	ErrConnClosed = sentinel.ErrConnClosed
	// ErrUnreachable: no ZooKeeper server has answered for a session timeout.
	// It ends a candidacy only before the candidate stands in line, and not
	// that of one that rejoins; later a candidate waits for the connection.
	ErrUnreachable = sentinel.ErrUnreachable
	// ErrInvalidPath: the path of the election node is not one that ZooKeeper
	// accepts, or is the root.
	ErrInvalidPath = sentinel.ErrInvalidPath
	// ErrInvalidOption: an option has a value that cannot work.
	ErrInvalidOption = sentinel.ErrInvalidOption
	// ErrNoElection: the election node does not exist.
	ErrNoElection = errors.New("leaderelection: election node does not exist")
	// ErrPermission: ZooKeeper refuses the request, by an ACL or because the
	// connection is not authenticated as it needs to be.
	ErrPermission = sentinel.ErrPermission
	// ErrAlreadyStarted: ElectLeader was called a second time.
	ErrAlreadyStarted = errors.New("leaderelection: candidate takes part already")
	// ErrCandidacyOver: the candidacy is over and cannot be taken up again;
	// make a new candidate.
	ErrCandidacyOver = errors.New("leaderelection: candidacy is over")
	// ErrNotLeader: the candidate does not lead; nothing was applied.
	ErrNotLeader = errors.New("leaderelection: not the leader")
	// ErrUnconfirmed: it is not known whether ZooKeeper has carried out what
	// was asked. The method says what happens then.
	ErrUnconfirmed = sentinel.ErrUnconfirmed
	// ErrForeignChildren: the election node has children that are no
	// candidates. Nothing was changed, unless one was created meanwhile; the
	// error's text tells.
	ErrForeignChildren = errors.New("leaderelection: election node has children that are no candidates")

	// ErrNoCandidate: there is no such candidate in the election.
	ErrNoCandidate = errors.New("leaderelection: no such candidate")
	// ErrForeignData: the election node has data that are not the library's, which it
	// does not overwrite. Whoever needs them keeps them elsewhere.
	ErrForeignData = errors.New("leaderelection: election node has data of its own")

	// ErrNodeExhausted: the election node has had 2147483647 children, and
	// ZooKeeper's numbers do not tell any more which of its children are older.
	// It ends the candidacy of newcomers; those who stand in line are not
	// concerned. The election goes on for others once the node was deleted and
	// created anew, by DeleteElection for instance.
	ErrNodeExhausted = sentinel.ErrNodeExhausted

	// ErrTooLarge: an answer is larger than the connection's receive buffer, which
	// zk.WithMaxBufferSize limits, usually the list of candidates. The error names the
	// znode. It ends a candidacy. By default there is no limit.
	ErrTooLarge = sentinel.ErrTooLarge

	// ErrAmbiguous: an ephemeral child of the election node has the same sequence number
	// as the candidate, so that the order of the two is unknown. One of them was not
	// created as a sequential znode. The error names both, and ends the candidacy.
	ErrAmbiguous = sentinel.ErrAmbiguous

	// ErrElectionOver: the election was ended for all candidates.
	ErrElectionOver = sentinel.ErrElectionOver
	// ErrElectionGone: after the session had ended, the election node was missing, or was
	// another one. The servers have lost it (see docs/servers.md), or a client has deleted
	// it in the meantime. A candidate with both [WithCreateNode] and [WithRejoin] does not
	// end then: it creates the node if it is missing, and continues there.
	ErrElectionGone = sentinel.ErrElectionGone
	// ErrDataLost: the servers do not know the session, and have not seen the
	// transactions that this client has seen: they were rebuilt without their data or
	// restored from a backup. It comes with [ErrSessionExpired], and only for connections
	// that were opened with package zkdial. Other connections cannot be used any more
	// after such a loss, and candidates wait for them without limit: open a new one.
	ErrDataLost = sentinel.ErrDataLost
	// ErrCandidateDeleted: somebody has deleted the candidate's znode. As a
	// final status's error it says that the election goes on without this
	// candidate; as the end of a Leadership it is also the first sign of an
	// election's end, or of a connection's that was closed.
	ErrCandidateDeleted = sentinel.ErrDeleted
	// ErrSessionExpired: the ZooKeeper session is over.
	ErrSessionExpired = sentinel.ErrSessionExpired
	// ErrLeaseExpired: leadership could not be proven any longer. It may still
	// be regained.
	ErrLeaseExpired = sentinel.ErrLeaseExpired
	// ErrResigned: the candidate has resigned.
	ErrResigned = errors.New("leaderelection: candidate has resigned")
)

// refine gives an error of the parts below its place among the errors above.
func refine(err error) error { return sentinel.Refine(err) }
