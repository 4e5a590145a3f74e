package recipes

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Errors that the recipes share, to be tested with errors.Is. Where the root package has an
// error of the same name for elections, it is the same value. Errors that were caused by
// ZooKeeper wrap the error of the client library, and name its error code and what to do: see
// docs/servers.md.
var (
	// ErrClosed is returned after Close was called, and is the reason why items, grants and channels
	// have ended with it.
	ErrClosed = errors.New("recipes: closed")
	// ErrReleased is the reason of a hold that was released, of an item that was acknowledged
	// or returned, and of a round of a double barrier that the participant has left.
	ErrReleased = errors.New("recipes: released")
	// ErrNotHeld is returned if a lock, or the claim of an item, is not held any more. Nothing
	// was applied.
	ErrNotHeld = errors.New("recipes: no longer held")
	// ErrTaken is returned if the znode exists and belongs to another session, or to another user of
	// this connection, or is persistent although it should be ephemeral. The recipe does not change
	// the znode.
	ErrTaken = errors.New("recipes: the znode was created by another client")
	// ErrInvalid is returned if an argument is invalid: the connection is nil, the path is the root
	// or not accepted by ZooKeeper, or the value of an option is invalid or does not
	// apply to the recipe. Nothing was changed. The text says what is wrong.
	ErrInvalid = connection.ErrInvalid
	// ErrFormat is returned if the data of a znode is not in the expected format of a [Codec]. The error also
	// wraps the error of the codec. Nothing was changed.
	ErrFormat = recipe.ErrFormat
	// ErrConnClosed is returned if the owner of the connection has closed it.
	ErrConnClosed = connection.ErrConnClosed
	// ErrPermission is returned if ZooKeeper rejects a request because of an ACL, because the
	// connection is not authenticated, or because a quota is exceeded; with [WithStrictACL] also if
	// the ACL of the node permits other clients to change it.
	ErrPermission = connection.ErrPermission
	// ErrUnconfirmed is returned if it is unknown whether ZooKeeper has executed a request.
	// The documentation of the method describes what happens next.
	ErrUnconfirmed = connection.ErrUnconfirmed
	// ErrDeleted is returned if another client has deleted the znode of this participant.
	ErrDeleted = connection.ErrDeleted
	// ErrNodeExhausted is returned if the recipe's node has had 2147483647 children:
	// ZooKeeper's sequence numbers are exhausted and do not give the order of further
	// children. Participants that have joined before are not affected. New ones can join
	// after the node was deleted and created again, which a queue does as soon as it is empty.
	ErrNodeExhausted = connection.ErrNodeExhausted
	// ErrTooLarge is returned if a reply is larger than the connection's receive buffer, which zk.WithMaxBufferSize
	// limits; the error names the znode. By default the buffer is unlimited, and on connections of package zkdial
	// larger than any reply. It is also returned if an item or a value is larger than a server with default
	// settings accepts, which is one megabyte including overhead; then nothing was sent.
	ErrTooLarge = connection.ErrTooLarge
	// ErrSessionExpired is returned if the ZooKeeper session has expired. Everything that
	// was held in the session is lost.
	ErrSessionExpired = connection.ErrSessionExpired
	// ErrLeaseExpired is returned if ZooKeeper has not answered for so long that the
	// session may have expired. Everything that was held must be considered lost.
	ErrLeaseExpired = connection.ErrLeaseExpired
)
