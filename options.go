package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
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

type options struct {
	ctx        context.Context
	clientName string
	timeout    time.Duration
	acl        []zk.ACL
	createNode bool
	rejoin     bool
	naming     Naming
	log        *slog.Logger
	hooks      []Hooks
}

const (
	// defaultSessionTimeout is the smallest that a server with default settings
	// grants: two ticks of two seconds.
	defaultSessionTimeout = 4 * time.Second
	defaultClientName     = "name-not-provided"
	// maxClientName is far below what a server takes in one request, a megabyte
	// by default: it closes the connection at a longer one, each time.
	maxClientName = 64 << 10
)

// Shared by all, so that a candidate does not have its own.
var (
	defaultACL = zk.WorldACL(zk.PermAll)
	defaultLog = slog.New(slog.DiscardHandler)
)

func newOptions(opts []Option) (*options, error) {
	o := &options{
		ctx:        context.Background(),
		clientName: defaultClientName,
		timeout:    defaultSessionTimeout,
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
	case o.timeout < 100*time.Millisecond:
		return nil, fmt.Errorf("%w: WithSessionTimeout(%v): less than 100ms leaves no time to prove leadership", ErrInvalidOption, o.timeout)
	case len(o.clientName) > maxClientName:
		return nil, fmt.Errorf("%w: WithClientName: %d bytes are more than %d", ErrInvalidOption, len(o.clientName), maxClientName)
	case len(o.acl) == 0:
		return nil, fmt.Errorf("%w: WithACL: no entry", ErrInvalidOption)
	case o.naming != CuratorLatch && o.naming != Kazoo:
		return nil, fmt.Errorf("%w: WithNaming(%d)", ErrInvalidOption, o.naming)
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

// WithSessionTimeout tells the session timeout that the server has granted to
// the connection, which the client library does not reveal. Leases are
// reckoned by it: one that is longer than what was granted makes leadership
// unsafe, a shorter one only makes it be suspended earlier. The default is 4 s,
// the smallest that a server with default settings grants; servers that grant
// less need this option. At least 100 ms.
//
// The reckoning supposes that the timeout is at least two ticks of the server,
// which is the least that one grants unless its minSessionTimeout says
// otherwise, and at least four behind an observer master.
func WithSessionTimeout(d time.Duration) Option {
	return optionFunc(func(o *options) { o.timeout = d })
}

// WithACL sets the ACL of the znodes that are created; by default everybody
// may do everything. The candidates need to read and delete each other's for
// EndElection, and every candidate needs to read its own.
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
// candidate, with a new ID, at the end of the line. It waits for ZooKeeper
// without limit. By default expiry ends the candidacy.
func WithRejoin() Option {
	return optionFunc(func(o *options) { o.rejoin = true })
}

// WithNaming sets how the candidate's znode is named. Names of every kind are
// understood in any case.
func WithNaming(n Naming) Option {
	return optionFunc(func(o *options) { o.naming = n })
}

// WithLogger sets where to log; by default nothing is logged. The handler is
// called on the goroutine of ElectLeader, and on short-lived ones beside it, and
// must not block.
func WithLogger(log *slog.Logger) Option {
	return optionFunc(func(o *options) { o.log = log })
}
