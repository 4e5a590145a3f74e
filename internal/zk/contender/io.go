package contender

import (
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// InputKind is the kind of an [Input].
type InputKind uint8

const (
	// Start makes the contender begin to join. It is the first input.
	Start InputKind = iota
	// ConnChanged reports that the state of the connection may differ from that of the last step.
	ConnChanged
	// Replied delivers the reply to a request.
	Replied
	// Fired delivers the event of a watch.
	Fired
	// Expired reports that a timer has expired.
	Expired
	// Leave makes the contender leave for the reason in Err.
	Leave
	// Rename makes the contender continue under the name Name, with the same sequence number.
	Rename
)

// Input is one input of the state machine.
type Input struct {
	Kind    InputKind
	Request Request // Replied: the request that was answered
	Reply   Reply   // Replied: the result of the request
	Watch   Watch   // Fired: the watch that has fired
	Name    string  // Fired: the watched znode; Rename: the new name
	// Safe is false if the watched contender belongs to the same session as this contender and the end of the
	// session may have deleted both znodes. It is true if the client itself has deleted the watched znode, and for
	// all other events.
	Safe  bool
	Timer Timer // Expired: the timer that has expired
	// Err is the reason of a Leave. For Fired it is nil if data or children have changed, and otherwise
	// connection.ErrDeleted, connection.ErrSessionExpired or connection.ErrConnClosed.
	Err error

	// conn is where Step stores the state of the connection while it runs. It is not a field of Contender, because
	// a contender that waits would need more memory (the rows "live heap" of the benchmarks).
	conn connection.State
}

// Watch is the kind of znode that a watch is on.
type Watch uint8

const (
	// OwnWatch is a watch on the children of the contender's znode. An ephemeral znode cannot have children, so
	// it fires only if the znode is deleted.
	OwnWatch Watch = iota
	// OtherWatch is a watch on the data of an earlier contender's znode.
	OtherWatch
	// QueueWatch is a watch on the children of the queue's znode.
	QueueWatch
)

// RequestKind is the kind of a [Request]. At most one request of each kind is outstanding.
type RequestKind uint8

const (
	// Create creates the contender's znode. Its name begins with a prefix that the driver chooses. Reply:
	// Prefix, Name, Session; Token, Alone and QueueCzxid if the driver has stamped the queue's znode, which
	// means that it has written that znode in the same transaction.
	Create RequestKind = iota
	// MakeQueue creates the znode of the queue and its parents.
	MakeQueue
	// Search lists the znodes that creates without a reply have left. The listing is not older than the request.
	// Reply: Names.
	Search
	// List lists the queue, and sets a watch on it if Watched is set. Reply: Names, QueueCzxid.
	List
	// ReadOwn reads the Stat of the contender's znode and sets a watch on it. Reply: Owner, Token.
	ReadOwn
	// ReadPredecessor reads the znode Name, the predecessor, and sets a watch on it. Reply: Owner, Version.
	ReadPredecessor
	// ReadBefore reads the znode Name, the contender before the predecessor, and sets a watch on it.
	// Reply: Owner, Version.
	ReadBefore
	// Inspect reads the Stat of the znode Name. Reply: Owner.
	Inspect
	// FindContender reads the Stats of the znodes Names, in this order, until it finds an ephemeral znode. Reply:
	// Name, the name of that znode, or empty; Names, the znodes that exist and are not ephemeral, in the same
	// order.
	FindContender
	// FindReason reads why the contender's znode was deleted: whether the tombstone of the queue exists, and
	// then the znode of the queue. Reply: Ended, QueueCzxid (0 if it does not exist).
	FindReason
	// Delete deletes the znode Name. If Last is set and Name is the contender's znode, the same transaction
	// contains what the recipe adds for the reason Err.
	Delete
	// Notify writes the data of the contender's znode again, to wake the contender that watches the znode.
	Notify
	// Replace replaces the contender's znode Name by To in one transaction, and sets a watch on the new znode.
	Replace
)

// Request is a request to ZooKeeper.
type Request struct {
	Kind RequestKind
	Name string // a child of the queue
	To   string // Replace: the name of the new znode
	// Watched makes List set a watch.
	Watched bool
	// Epoch is the connection's Epoch, which each break increases, at the time when the request was output.
	Epoch uint64
	// Reset makes the request set its watch again if the connection has broken since the watch was set.
	Reset    bool
	Prefixes []string // Search: the prefixes of the names to search for
	Names    []string // FindContender: the znodes to read
	// Last reports that a Delete or Search belongs to the removal of a contender that leaves.
	Last bool
	Err  error // Delete with Last: why the contender leaves
}

// ErrLost is the error of a Create or Delete whose reply was lost with the connection. The driver itself retries
// requests of the other kinds.
var ErrLost = errors.New("the reply was lost")

// Reply is the result of a request. Err is nil, zk.ErrNoNode if a znode does not exist, ErrLost,
// connection.ErrConnClosed, or an error that the same request would receive again.
type Reply struct {
	Err        error
	Prefix     string
	Name       string
	Names      []string
	Session    int64 // Create: the session in which the znode was created, 0 if it is unknown
	Owner      int64 // the session that owns a znode
	Token      int64 // the creation zxid of a znode
	QueueCzxid int64
	Version    int32 // the version of the znode's data
	Ephemeral  bool
	Alone      bool // Create: the contender is the only child of the queue
	Ended      bool
	// Predicted is the name that the predecessor probably has, or empty. Others is the number of other children of
	// the queue. Both are set by a Create whose transaction has stamped the queue's znode.
	Predicted string
	Others    int32
	// Doubt reports that the watch may never fire: it was set before the connection broke, or on a znode that the
	// connection must not read.
	Doubt bool
}

// Timer is the kind of a timer. At most one timer of each kind is set.
type Timer uint8

const (
	// PatienceTimer ends a contender that cannot join for the time Patience, or does not learn why its znode was
	// deleted.
	PatienceTimer Timer = iota
	// ReasonTimer repeats the report that the contender's znode was deleted.
	ReasonTimer
	// PrepareTimer makes a contender that has waited for some time prepare for its turn.
	PrepareTimer
	// OwnTimer sets the watch on the contender's znode during a hold.
	OwnTimer
	// DoubtTimer makes the contender set watches again that may never fire (Reply.Doubt).
	DoubtTimer
	// StandbyTimer ends the lease that the next contender keeps in advance.
	StandbyTimer
)

// OutputKind is the kind of an [Output].
type OutputKind uint8

const (
	// Send sends Request. The reply is a later input.
	Send OutputKind = iota
	// Report delivers State to the user before the following outputs are executed.
	Report
	// Set sets Timer to expire after After, replacing an earlier setting.
	Set
	// Stop stops Timer before it expires.
	Stop
	// Prove starts the renewal of the lease by checks of the contender's znode. After a Replace, the renewal
	// continues with the new znode. If the create of the znode was answered, it counts as the first check. The
	// driver then steps with ConnChanged.
	Prove
	// Rest ends the renewal of the lease.
	Rest
	// Renamed reports that a Rename has ended with the result Err.
	Renamed
	// Ignoring reports that Count children, of which Name is the first, are named like contenders but are not
	// ephemeral, and that the contender ignores them.
	Ignoring
	// Removing reports that Name is an orphaned znode of this contender, which it deletes.
	Removing
	// Bury deletes the znode Name, which belongs to an expired session, in the background.
	Bury
	// Finish is the last output. Err is nil if all znodes of the contender are known to be deleted.
	Finish
)

// Output is one output of the state machine. Outputs must be executed in order.
type Output struct {
	Kind    OutputKind
	Request Request
	State   State
	Timer   Timer
	After   time.Duration
	Name    string
	Count   int // Ignoring: the number of ignored children
	Err     error
}

// State is the situation of a contender, as it is reported to the user. If you add a field here, add it to State
// and stateOf of package queue as well.
type State struct {
	Name        string // the contender's znode, empty before it is created
	Predecessor string // the predecessor's znode, empty for the head of the queue
	// Next reports that the last listing has shown the predecessor as the only earlier contender that
	// this one waits for. It is false with Policy.Admit, and if the predecessor can be replaced.
	Next  bool
	First bool // the contender has its turn
	// Proven reports that a valid lease covers the turn. It implies First.
	Proven  bool
	Session int64 // the owner of the znode; set with First
	Token   int64 // the creation zxid of the znode; set with First
	Err     error // why the contender has lost or removed its znode
}
