package recipes

import "github.com/go-leaderelection/leaderelection/internal/sentinel"

// The errors that recipes share, for errors.Is. They are the values that the root
// package exports for elections. Those that ZooKeeper has caused wrap what the
// client library returned.
var (
	// ErrNilConn: no connection was passed in.
	ErrNilConn = sentinel.ErrNilConn
	// ErrConnClosed: the owner of the connection has closed it.
	ErrConnClosed = sentinel.ErrConnClosed
	// ErrInvalidPath: the path is not one that ZooKeeper accepts, or is the
	// root.
	ErrInvalidPath = sentinel.ErrInvalidPath
	// ErrInvalidOption: an option or argument has a value that cannot work.
	// Nothing was changed.
	ErrInvalidOption = sentinel.ErrInvalidOption
	// ErrPermission: ZooKeeper refuses the request, by an ACL or because the
	// connection is not authenticated as it needs to be.
	ErrPermission = sentinel.ErrPermission
	// ErrUnconfirmed: it is not known whether ZooKeeper has carried out what was
	// asked. The method says what happens then.
	ErrUnconfirmed = sentinel.ErrUnconfirmed
	// ErrDeleted: somebody else has deleted the znode that stands for this
	// participant.
	ErrDeleted = sentinel.ErrDeleted
	// ErrNodeExhausted: the recipe's node has had 2147483647 children, and
	// ZooKeeper's numbers do not tell any more which of its children are older.
	// Those who stand in line are not concerned; newcomers can join once the node
	// was deleted and created anew.
	ErrNodeExhausted = sentinel.ErrNodeExhausted
	// ErrTooLarge: an answer is larger than the connection's receive buffer, which
	// zk.WithMaxBufferSize limits. The error names the znode. By default there is no limit.
	ErrTooLarge = sentinel.ErrTooLarge
	// ErrSessionExpired: the ZooKeeper session is over, and with it everything
	// that was held in it.
	ErrSessionExpired = sentinel.ErrSessionExpired
	// ErrLeaseExpired: ZooKeeper has not answered for so long that the session
	// may be over. What was held must be taken for lost.
	ErrLeaseExpired = sentinel.ErrLeaseExpired
)
