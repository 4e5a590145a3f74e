package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Option configures a function of this package. Functions ignore options that do not apply
// to them.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// options contains what the Options of one call of a function have set.
type options struct {
	connection.Options // options of the call; Conn may be nil

	ctx        context.Context
	clientName string
	value      string
	createNode bool
	rejoin     bool
	naming     contender.Naming
}

const defaultClientName = "name-not-provided"

// All candidates share the following values, so that each candidate needs less memory.
var (
	defaultACL = zk.WorldACL(zk.PermAll)
	defaultLog = slog.New(slog.DiscardHandler)
)

// newOptions returns the options of a call over conn. conn may be nil.
func newOptions(conn *zk.Conn, opts []Option) (*options, error) {
	o := &options{
		Options:    connection.Options{Conn: conn, ACL: defaultACL, Log: defaultLog},
		ctx:        context.Background(),
		clientName: defaultClientName,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: an option is nil", ErrInvalid)
		}
		opt.apply(o)
	}
	if o.ctx == nil {
		return nil, fmt.Errorf("%w: WithContext(nil)", ErrInvalid)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := record.Check(o.clientName, o.value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	err := o.naming.Check()
	if err == nil {
		// A prefix must consist of characters that are valid in a path.
		err = connection.CheckPath("/naming=" + string(o.naming))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: WithNamePrefix: %w", ErrInvalid, err)
	}
	return o, nil
}

// WithContext bounds [NewElection] and the candidacy, or [DeleteElection], by ctx. When ctx is
// done, requests are abandoned, and the candidacy of an [Election] ends as by
// [Election.Resign]. Functions with a parameter ctx ignore this option.
func WithContext(ctx context.Context) Option {
	return optionFunc(func(o *options) { o.ctx = ctx })
}

// WithName sets the name of the candidate, for instance a host name, of at most 64
// KiB without control characters. The name is the data of the candidate's znode, and observers can read it. The
// default is "name-not-provided".
func WithName(name string) Option {
	return optionFunc(func(o *options) {
		if o.clientName = name; name == "" {
			o.clientName = defaultClientName
		}
	})
}

// WithValue sets a text that the candidate advertises, for instance the address of its service, of at most
// 64 KiB without null characters. Observers can read it as CandidateInfo.Value, before and while the
// candidate is the leader. It does not change during the candidacy. The default is "".
//
// If the value is not empty, the data of the candidate's znode is the name, a null character
// and the value. Other libraries, such as Curator and kazoo, take all of that for the
// candidate's name.
func WithValue(value string) Option {
	return optionFunc(func(o *options) { o.value = value })
}

// WithSessionTimeout limits leases as if the session timeout were d: they last at most d/2
// from the time at which the last confirmed check was sent. A shorter timeout suspends a
// leader earlier if ZooKeeper does not answer, and makes it renew its lease more often. The
// default is the timeout that the servers have granted to the connection (see
// zkdial.Granted), or, as long as that is unknown, 4 s, the smallest timeout that servers
// grant by default.
//
// The option does not change the leases of other users of the same connection: each has
// leases according to its own option. The additional checks end with the lease that needs
// them.
//
// d must be at least 100 ms and at most the granted timeout; otherwise [ErrInvalid]
// is returned. If d proves to be longer than the granted timeout later, because the session
// did not exist yet or because a reconnect has changed the granted timeout, leases use the
// granted timeout and a warning is logged.
//
// Leases assume that the granted timeout is at least two ticks of the server, which is the
// minimum unless the server sets minSessionTimeout, and at least four ticks for servers
// that follow an observer master.
func WithSessionTimeout(d time.Duration) Option {
	return optionFunc(func(o *options) { o.SetTimeout(d) })
}

// WithCheckInterval sets how long a leader, and for a time the candidate that is next, wait after one check
// of their znodes was acknowledged before they send the next one. Each check is a write of the ensemble. The
// default is an eighth of the session timeout: 120 checks per minute at 4 s. A longer d reduces them, down to
// half for a quarter of the session timeout; longer ones count as a quarter. In exchange, the lease has less
// time left when a check is sent. With a quarter of the session timeout, an answer that takes about a quarter
// of the session timeout suspends the leader; by default, an answer that takes three eighths does. After a loss
// of the connection, the lease does not expire later than by default.
//
// Of several candidates, locks and queues of one connection that lead or hold something,
// the shortest interval counts. A d of zero or less is an [ErrInvalid].
func WithCheckInterval(d time.Duration) Option {
	return optionFunc(func(o *options) { o.SetCheckInterval(d) })
}

// WithACL sets the ACL of the znodes that are created. The default grants all permissions
// to all clients. Each candidate must be allowed to read its znode, or its candidacy ends
// with [ErrPermission]. If it is not allowed to read its predecessor's, ZooKeeper sends it no
// events, and it detects up to ten seconds late that the predecessor has left.
// [Election.EndElection] and [DeleteElection] need the permission to delete all znodes of
// the election.
//
// The ACL of the election node, and not that of a candidate's znode, determines who may delete
// candidates and create others. If another client has created the election node, its ACL applies, and
// WithACL does not change it. So ElectLeader reads the ACL of the election node once for each
// connection, and logs a warning if it permits a client to create, delete, write or administer to
// which acl does not grant that. The scheme "auth" in acl means all clients with credentials. See
// [WithStrictACL] and docs/access.md.
func WithACL(acl []zk.ACL) Option {
	return optionFunc(func(o *options) { o.ACL = acl })
}

// WithStrictACL lets ElectLeader return [ErrPermission], before it creates anything, if the ACL of
// the election node permits other clients more than the ACL of [WithACL] does. The error names these
// clients and permissions, and the command that sets the ACL. By default a warning is logged. Without
// WithACL, or with an ACL that grants all permissions to all clients, the option is an
// [ErrInvalid].
func WithStrictACL() Option {
	return optionFunc(func(o *options) { o.StrictACL = true })
}

// WithCreateNode makes [NewElection] create the election node and its parents if they do
// not exist. The election node is persistent. Its parents are containers, which the servers
// remove after their last child was deleted. If the election node is removed before the
// candidate has tried to join, the candidate creates it again, because it can be a container
// that another program has created, or joins the node that another client has created in its
// place. By default a missing election node is an error.
func WithCreateNode() Option {
	return optionFunc(func(o *options) { o.createNode = true })
}

// WithRejoin lets a candidacy continue after its session has expired. The candidate first
// delivers a status with Role Follower and an empty NowFollowing, and then joins again,
// behind all other candidates, with a new ID. ElectLeader waits for ZooKeeper without a
// limit, including before the first session, so that a program can start before its
// ZooKeeper. By default session expiry ends the candidacy.
//
// A candidate that has joined once also joins again after the servers have rejected a request
// for a reason that can pass: an exceeded quota, or a connection that is not authenticated
// (see docs/servers.md). It logs a warning, and pauses for up to five seconds between its
// attempts. Before it has joined, a rejection ends the candidacy with [ErrPermission].
//
// In the new session the election node may not exist or may have been re-created, because
// the servers have lost their data or a client has deleted the node. Together with
// [WithCreateNode] the candidate creates the node if necessary and continues; otherwise the
// candidacy ends with [ErrNoElection].
func WithRejoin() Option {
	return optionFunc(func(o *options) { o.rejoin = true })
}

// WithKazooNames names the candidate's znode as kazoo's Election and Lock do, so that Go and
// Python candidates can share an election. The default are the names of LeaderLatch of Apache
// Curator, so that Go and Java candidates can share an election. Curator cannot parse kazoo's
// names, so an election cannot be shared by all three.
//
// With any of the three forms, every ephemeral child of the election node whose name ends in ten
// digits is recognized as a candidate. Candidates are ordered by these numbers.
func WithKazooNames() Option {
	return optionFunc(func(o *options) { o.naming = contender.Kazoo })
}

// WithNamePrefix names the candidate's znode as many hand-written elections do: prefix followed
// by the sequence number that ZooKeeper appends, for instance "n_0000000042", or the number
// alone for an empty prefix. Use it to migrate such an election to this library while both
// versions of a program run, or to share an election with programs that recognize no other
// names.
//
// If prefix begins with "_c_*-", 32 random hexadecimal digits replace the asterisk, as in names
// that CreateProtectedEphemeralSequential of go-zookeeper creates: "_c_*-lock-" is the prefix of
// its Lock.
//
// A program must not run a hand-written candidate and a candidate of this library with the
// same data in one election over the same connection: if the reply to a create is lost, the
// candidate recognizes a znode without random digits only by owner and data.
//
// Names without random digits occur again if the election node is created again after it was
// deleted, or lost by the servers. A candidate deletes a znode with such a name only after it has
// read that the znode is its own. But a transaction of [Leadership.Multi] that reaches the servers
// later, because it was delayed or the program was stopped, is applied if another candidate has the
// same name by then.
func WithNamePrefix(prefix string) Option {
	return optionFunc(func(o *options) { o.naming = contender.NamingOf(prefix) })
}

// WithLogger sets the logger. By default nothing is logged. The handler is called on the
// goroutine of ElectLeader and on other short-lived goroutines, and must not block.
func WithLogger(log *slog.Logger) Option {
	return optionFunc(func(o *options) { o.Log = log })
}

// waitLimiter returns a context that limits the wait for the response to one request.
type waitLimiter func() (context.Context, context.CancelFunc)

// limitWait is a waitLimiter: it limits each wait to a session timeout.
func (o *options) limitWait() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(o.ctx, connection.SessionTimeout(o.Conn, o.Timeout), ErrUnreachable)
}

// retryRequest calls f, which sends one request that is safe to repeat, and calls f again after transient
// errors until the limit.
func retryRequest[T any](limit waitLimiter, conn *zk.Conn, f func() (T, error)) (T, error) {
	ctx, cancel := limit()
	defer cancel()
	return connection.Read(ctx, conn, f)
}
