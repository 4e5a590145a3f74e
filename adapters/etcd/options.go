package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
)

// Option configures the functions of this package. A function ignores options that do not
// apply to it.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	ctx        context.Context
	clientName string
	value      string
	timeout    time.Duration
	createNode bool
	rejoin     bool
	log        *slog.Logger
}

const (
	defaultSessionTimeout = 10 * time.Second
	// maxSessionTimeout is the longest TTL that servers accept.
	maxSessionTimeout = 9000000000 * time.Second
	defaultClientName = "name-not-provided"
)

func newOptions(opts []Option) (*options, error) {
	o := &options{
		ctx:        context.Background(),
		clientName: defaultClientName,
		timeout:    defaultSessionTimeout,
		log:        slog.New(warningsOnly{slog.Default().Handler()}),
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: an option is nil", leaderelection.ErrInvalid)
		}
		opt.apply(o)
	}
	switch {
	case o.ctx == nil:
		return nil, fmt.Errorf("%w: WithContext(nil)", leaderelection.ErrInvalid)
	case o.log == nil:
		return nil, fmt.Errorf("%w: WithLogger(nil)", leaderelection.ErrInvalid)
	case o.timeout < time.Second, o.timeout > maxSessionTimeout:
		return nil, fmt.Errorf("%w: WithSessionTimeout(%v): must be from 1s to 9000000000s", leaderelection.ErrInvalid, o.timeout)
	}
	if err := record.Check(o.clientName, o.value); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	}
	return o, nil
}

// checkArguments returns an error if client is nil or closed, or if node is not a valid key.
func checkArguments(client *clientv3.Client, node string) error {
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

// CheckKey reports whether key is a valid key for an election. If it is not, the error
// wraps [leaderelection.ErrInvalid]. CheckKey sends no request.
func CheckKey(key string) error {
	if key == "" || strings.HasSuffix(key, "/") || strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%w: %q: the key must not be empty, end in a slash or contain a control character", leaderelection.ErrInvalid, key)
	}
	return nil
}

// WithContext sets a context that limits [NewElection] and the candidacy, or
// [DeleteElection]. When ctx is done, a candidacy ends as by [Election.Resign], and a
// request is cancelled. Functions with a parameter ctx ignore this option.
func WithContext(ctx context.Context) Option { return optionFunc(func(o *options) { o.ctx = ctx }) }

// WithName sets the candidate's name, at most 64 KiB without control
// characters. It is the value of the candidate's key, which observers and "etcdctl elect
// --listen" show. The default, also for an empty name, is "name-not-provided".
func WithName(name string) Option {
	return optionFunc(func(o *options) {
		if o.clientName = name; name == "" {
			o.clientName = defaultClientName
		}
	})
}

// WithValue sets a text that the candidate advertises, for instance the address of its
// service, of at most 64 KiB without null characters. Observers can read it as
// CandidateInfo.Value. If it is not empty, the value of the candidate's key consists of the
// name, a null character and the text.
func WithValue(value string) Option { return optionFunc(func(o *options) { o.value = value }) }

// WithSessionTimeout sets the TTL that the candidate requests, rounded up to seconds. The
// default is 10 s. The server may grant more, at least one and a half of its election
// timeout, and the granted TTL is used. The TTL is the time until other candidates take
// over after a crash. A leader that cannot reach etcd is suspended three quarters of the
// TTL after its last confirmation. Choose the TTL so that an etcd cluster whose leader
// fails has elected a new one by then.
func WithSessionTimeout(d time.Duration) Option {
	return optionFunc(func(o *options) { o.timeout = d })
}

// WithCreateNode makes [NewElection] create the election node if it does not exist. By
// default the caller must create it, by a Put of any value, and NewElection returns an
// error if it does not exist.
func WithCreateNode() Option { return optionFunc(func(o *options) { o.createNode = true }) }

// WithRejoin makes a candidacy continue after its lease has expired: the candidate
// delivers a status with role Follower and without a predecessor, and joins the election
// again, behind all other candidates, with a new lease and a new ID. It waits for etcd
// without a limit, also at the start: [NewElection] then returns after a session timeout,
// and ElectLeader looks for the election node. If etcd has lost data, because it was
// restored from a backup or emptied, the candidate joins the election that exists there,
// and creates it if [WithCreateNode] is given as well. Before that, a follower, or a leader
// whose lease has expired, waits for a TTL, because another leader may not know of the loss
// yet. It waits for its own TTL, so all candidates of an election must have the same
// [WithSessionTimeout]: otherwise two of them can lead at the same time after such a loss.
// By default the candidacy ends when the lease expires.
func WithRejoin() Option { return optionFunc(func(o *options) { o.rejoin = true }) }

// WithLogger sets the logger. By default only warnings are logged, to [slog.Default]: they
// report that etcd does not execute requests, with the reason, or has lost data. The
// handler is called on the goroutine of ElectLeader and must not block.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(o *options) { o.log = log }) }
