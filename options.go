package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/znode"
)

// Option changes how a function of this package works. A function ignores the
// options that do not concern it.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Naming is how the znodes of candidates are named.
type Naming = line.Naming

const (
	// CuratorLatch names znodes as Apache Curator's LeaderLatch does, so that
	// Go and Java candidates can stand in one election. It is the default.
	CuratorLatch = line.CuratorLatch
	// Kazoo names znodes as kazoo's Election and Lock do, for elections shared
	// with Python. Curator cannot read these names: one election cannot have
	// candidates of all three.
	Kazoo = line.Kazoo
)

// Prefix names znodes as a hand-written election does: prefix and the sequence number
// that ZooKeeper appends, for instance "n_0000000042", and with Prefix("") the number
// alone. It is for moving such an election over to this library while both versions
// of a program run, and for sharing one with programs that read no other names.
//
// A program must not have a hand-written candidate and one of this library, with the same
// data, in one election over the same connection: after a create whose reply was lost, the
// candidate recognizes its znode only by the owner and the data.
func Prefix(prefix string) Naming { return line.Prefix(prefix) }

// ProtectedPrefix is [Prefix] for programs that create their znodes with
// CreateProtectedEphemeralSequential of go-zookeeper: "_c_", 32 hex digits, "-", prefix
// and the sequence number.
func ProtectedPrefix(prefix string) Naming { return line.ProtectedPrefix(prefix) }

type options struct {
	conn       *zk.Conn
	ctx        context.Context
	clientName string
	timeout    time.Duration // that WithSessionTimeout states, 0 without it
	stated     bool
	acl        []zk.ACL
	createNode bool
	rejoin     bool
	naming     Naming
	log        *slog.Logger
	hooks      []Hooks
}

const (
	defaultClientName = "name-not-provided"
	// maxClientName is far below what a server takes in one request, a megabyte
	// by default: it closes the connection at a longer one, each time.
	maxClientName = 64 << 10
)

// Shared by all, so that a candidate does not have its own.
var (
	defaultACL = zk.WorldACL(zk.PermAll)
	defaultLog = slog.New(slog.DiscardHandler)
)

func newOptions(conn *zk.Conn, opts []Option) (*options, error) {
	o := &options{
		conn:       conn,
		ctx:        context.Background(),
		clientName: defaultClientName,
		acl:        defaultACL,
		log:        defaultLog,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: it is nil", ErrInvalidOption)
		}
		opt.apply(o)
	}
	switch {
	case o.ctx == nil:
		return nil, fmt.Errorf("%w: WithContext(nil)", ErrInvalidOption)
	case o.log == nil:
		return nil, fmt.Errorf("%w: WithLogger(nil)", ErrInvalidOption)
	case o.stated && o.timeout < 100*time.Millisecond:
		return nil, fmt.Errorf("%w: WithSessionTimeout(%v): less than 100ms leaves no time to prove leadership", ErrInvalidOption, o.timeout)
	case len(o.clientName) > maxClientName:
		return nil, fmt.Errorf("%w: WithClientName: %d bytes are more than %d", ErrInvalidOption, len(o.clientName), maxClientName)
	case len(o.acl) == 0:
		return nil, fmt.Errorf("%w: WithACL: no entry", ErrInvalidOption)
	}
	err := o.naming.Check()
	if err == nil {
		err = znode.CheckPath("/naming=" + string(o.naming)) // the characters of a prefix
	}
	if err != nil {
		return nil, fmt.Errorf("%w: WithNaming: %w", ErrInvalidOption, err)
	}
	if conn != nil {
		if err := session.Validate(conn, o.timeout); err != nil {
			return nil, fmt.Errorf("%w: WithSessionTimeout(%v): %w", ErrInvalidOption, o.timeout, err)
		}
	}
	return o, nil
}

// WithContext bounds what it is passed to: a candidacy ends as by
// [Election.Resign] when ctx does, a request is given up.
func WithContext(ctx context.Context) Option {
	return optionFunc(func(o *options) { o.ctx = ctx })
}

// WithClientName sets the candidate's name, which is the data of its znode and
// what observers see; a host name, for instance, and at most 64 KiB. Without it,
// or when it is empty, the name is "name-not-provided".
func WithClientName(name string) Option {
	return optionFunc(func(o *options) {
		if o.clientName = name; name == "" {
			o.clientName = defaultClientName
		}
	})
}

// WithSessionTimeout has leases last as if the session had this timeout: leadership is
// suspended earlier then when ZooKeeper does not answer, and each leader writes more
// often. By default the timeout is used that the servers have granted to the connection
// (see zkdial.Granted); 4 s, the smallest that servers grant by default, as long as it
// is not known.
//
// At least 100 ms, and not more than was granted: a longer one is rejected with
// [ErrInvalidOption]. If it turns out to be longer only later, because there was no
// session yet or a reconnect has changed the granted timeout, leases are shortened to
// what was granted and a warning is logged.
//
// Leases assume that the granted timeout is at least two ticks of the server, the
// smallest that servers grant unless their minSessionTimeout is set, and at least four
// ticks for servers behind an observer master.
func WithSessionTimeout(d time.Duration) Option {
	return optionFunc(func(o *options) { o.timeout, o.stated = d, true })
}

// WithACL sets the ACL of the znodes that are created; by default everybody
// may do everything. Every candidate must be allowed to read its own znode and that
// of the candidate ahead of it: without that its candidacy ends with [ErrPermission]. To
// end an election, by EndElection or [DeleteElection], all znodes must be deletable.
func WithACL(acl []zk.ACL) Option {
	return optionFunc(func(o *options) { o.acl = acl })
}

// WithCreateNode has [NewElection] create the election node, and its parents,
// where they are missing. By default that is the client's task and a missing
// node an error.
func WithCreateNode() Option {
	return optionFunc(func(o *options) { o.createNode = true })
}

// WithRejoin has a candidacy outlive the session: after an expiry there is a
// status as Follower that follows nobody, and the candidacy goes on as a new
// candidate, with a new ID, at the end of the line. ElectLeader waits for ZooKeeper
// without limit, also before the first session: a program may start before its
// ZooKeeper. By default expiry ends the candidacy.
//
// In the new session the election node may be missing or another one, because the servers
// have lost their data or a client has deleted it. Together with [WithCreateNode] the
// candidate creates it if necessary and continues; otherwise the candidacy ends with
// [ErrElectionGone].
func WithRejoin() Option {
	return optionFunc(func(o *options) { o.rejoin = true })
}

// WithNaming sets how the candidate's znode is named. Whatever the naming, every
// ephemeral child of the election node whose name ends in ten digits is a candidate, and
// the order of candidates is that of these numbers.
func WithNaming(n Naming) Option {
	return optionFunc(func(o *options) { o.naming = n })
}

// WithLogger sets where to log; by default nothing is logged. The handler is
// called on the goroutine of ElectLeader, and on short-lived ones beside it, and
// must not block.
func WithLogger(log *slog.Logger) Option {
	return optionFunc(func(o *options) { o.log = log })
}
