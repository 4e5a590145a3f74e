package recipes

import "github.com/go-leaderelection/leaderelection/internal/zk/zkerror"

// Errors that the recipes share, to be tested with errors.Is. They are identical to the
// errors that the root package exports for elections. Errors that were caused by ZooKeeper
// wrap the error of the client library, and name its error code and what to do: see
// docs/servers.md.
var (
	// ErrNilConn is returned if the connection is nil.
	ErrNilConn = zkerror.ErrNilConn
	// ErrConnClosed is returned if the owner of the connection has closed it.
	ErrConnClosed = zkerror.ErrConnClosed
	// ErrInvalidPath is returned if ZooKeeper does not accept the path, or if the path is
	// the root.
	ErrInvalidPath = zkerror.ErrInvalidPath
	// ErrInvalidOption is returned if an option or argument has an invalid value, or if an
	// option does not apply to the recipe. Nothing was changed.
	ErrInvalidOption = zkerror.ErrInvalidOption
	// ErrPermission is returned if ZooKeeper rejects a request because of an ACL, because the
	// connection is not authenticated, or because a quota is exceeded; with [WithStrictACL] also if
	// the ACL of the node permits other clients to change it.
	ErrPermission = zkerror.ErrPermission
	// ErrUnconfirmed is returned if it is unknown whether ZooKeeper has executed a request.
	// The documentation of the method describes what happens next.
	ErrUnconfirmed = zkerror.ErrUnconfirmed
	// ErrDeleted is returned if another client has deleted the znode of this participant.
	ErrDeleted = zkerror.ErrDeleted
	// ErrNodeExhausted is returned if the recipe's node has had 2147483647 children:
	// ZooKeeper's sequence numbers are exhausted and do not give the order of further
	// children. Participants that have joined before are not affected. New ones can join
	// after the node was deleted and created again.
	ErrNodeExhausted = zkerror.ErrNodeExhausted
	// ErrTooLarge is returned if a reply is larger than the connection's receive buffer,
	// which is limited by zk.WithMaxBufferSize and unlimited by default. The error names
	// the znode.
	ErrTooLarge = zkerror.ErrTooLarge
	// ErrSessionExpired is returned if the ZooKeeper session has expired. Everything that
	// was held in the session is lost.
	ErrSessionExpired = zkerror.ErrSessionExpired
	// ErrLeaseExpired is returned if ZooKeeper has not answered for so long that the
	// session may have expired. Everything that was held must be considered lost.
	ErrLeaseExpired = zkerror.ErrLeaseExpired
)
