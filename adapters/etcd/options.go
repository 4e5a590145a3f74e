package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
)

// Option changes how a function of this package works. A function ignores the options that
// do not concern it.
type Option func(*options)

type options struct {
	ctx        context.Context
	clientName string
	timeout    time.Duration
	createNode bool
	rejoin     bool
	log        *slog.Logger
}

const (
	defaultSessionTimeout = 10 * time.Second
	// maxSessionTimeout is what a server takes.
	maxSessionTimeout = 9000000000 * time.Second
	defaultClientName = "name-not-provided"
	// maxClientName is far below what a server takes in one request, 1.5 MiB by default.
	maxClientName = 64 << 10
)

func newOptions(opts []Option) (*options, error) {
	o := &options{
		ctx:        context.Background(),
		clientName: defaultClientName,
		timeout:    defaultSessionTimeout,
		log:        slog.New(slog.DiscardHandler),
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: it is nil", leaderelection.ErrInvalidOption)
		}
		opt(o)
	}
	switch {
	case o.ctx == nil:
		return nil, fmt.Errorf("%w: WithContext(nil)", leaderelection.ErrInvalidOption)
	case o.log == nil:
		return nil, fmt.Errorf("%w: WithLogger(nil)", leaderelection.ErrInvalidOption)
	case o.timeout < time.Second, o.timeout > maxSessionTimeout:
		return nil, fmt.Errorf("%w: WithSessionTimeout(%v): etcd counts TTLs in seconds, from 1 to 9000000000", leaderelection.ErrInvalidOption, o.timeout)
	case len(o.clientName) > maxClientName:
		return nil, fmt.Errorf("%w: WithClientName: %d bytes are more than %d", leaderelection.ErrInvalidOption, len(o.clientName), maxClientName)
	}
	return o, nil
}

// check refuses what no request can be sent for.
func check(client *clientv3.Client, node string) error {
	switch {
	case client == nil:
		return errNilClient
	case CheckKey(node) != nil:
		return CheckKey(node)
	case client.Ctx().Err() != nil:
		return errClosed
	}
	return nil
}

// CheckKey returns an error that wraps [leaderelection.ErrInvalidPath] if an election cannot
// have this key. It sends nothing.
func CheckKey(key string) error {
	if key == "" || strings.HasSuffix(key, "/") || strings.ContainsRune(key, 0) {
		return fmt.Errorf("%w: %q: the key of an election is not empty, does not end in a slash, and has no zero byte", leaderelection.ErrInvalidPath, key)
	}
	return nil
}

// WithContext bounds what it is passed to: a candidacy ends as by [Election.Resign] when ctx
// does, a request is given up.
func WithContext(ctx context.Context) Option { return func(o *options) { o.ctx = ctx } }

// WithClientName sets the candidate's name, which is the value of its key and what observers
// and `etcdctl elect --listen` see; at most 64 KiB. Without it, or when it is empty, the name
// is "name-not-provided".
func WithClientName(name string) Option {
	return func(o *options) {
		if o.clientName = name; name == "" {
			o.clientName = defaultClientName
		}
	}
}

// WithSessionTimeout sets the TTL to ask for, rounded up to seconds; 10 s by default. A server
// grants no less than one and a half of its election timeout, and what it grants counts. It is
// how long the others wait after a crash. A leader that cannot reach etcd is suspended three
// quarters of it after the last confirmation: a cluster whose leader fails should have elected
// another by then.
func WithSessionTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithCreateNode has [NewElection] create the election node where it is missing. By default
// that is the client's task, by a Put of any value, and a missing node an error.
func WithCreateNode() Option { return func(o *options) { o.createNode = true } }

// WithRejoin has a candidacy outlive its lease: when that is gone there is a status as
// Follower that follows nobody, and the candidacy goes on with a new lease, and a new ID, at
// the end of the line. It waits for etcd without limit. By default the end of the lease ends
// the candidacy.
func WithRejoin() Option { return func(o *options) { o.rejoin = true } }

// WithLogger sets where to log; by default nothing is logged. The handler is called on the
// goroutine of ElectLeader and must not block.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }
