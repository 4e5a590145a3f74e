package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// The defaults of the fields of Config.
const (
	DefaultRetryPause  = 300 * time.Millisecond
	DefaultCallTimeout = 500 * time.Millisecond
	DefaultRefresh     = 5 * time.Second
)

// Config configures a client.
type Config struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Peers are the initial peers to contact, at least one. The client learns the other peers from them. A
	// peer whose ID is unknown needs only an address. Calls also try Peers later, after the members that the
	// client knows.
	Peers []api.Peer
	// Secret is the secret of clients, raftlog.Config.ClientSecret, with at least 16 bytes. The
	// secret of peers is not accepted. One of Secret, TLS and Insecure is required; TLS can be
	// combined with Secret.
	Secret []byte
	// GetSecret, if not nil, is called for each connection, by any goroutine, and used instead of
	// Secret.
	GetSecret func() []byte
	// TLS contains the client's certificate and the trusted authorities. The certificate of a
	// peer must contain the host of its address, unless TLS contains a ServerName.
	TLS *tls.Config
	// AllowedNames lists the names of the certificates of peers to accept, as in raftlog.Config. If
	// AllowedNames is empty, every certificate for the host of the peer's address is accepted.
	AllowedNames []string
	// Insecure disables authentication and encryption.
	Insecure bool
	// Dial connects to host:port. The default uses TCP. Dial must return soon after its context is done.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// RetryPause is the average time before a call is retried at the next peer; the actual
	// time is between a half and 1.5 times of this average. There is no pause if a peer has
	// named the leader. The default is DefaultRetryPause.
	RetryPause time.Duration
	// CallTimeout is the time in which a peer must accept a connection, and answer a
	// request that it can answer immediately. An update may take longer, until its context
	// is done, but a peer that does not send a keepalive for four times CallTimeout is
	// abandoned. The default is DefaultCallTimeout.
	CallTimeout time.Duration
	// Refresh is the interval at which the client queries the membership, whether or not it
	// is used. If Refresh is negative, the client queries the membership only when peers do
	// not answer. The default is DefaultRefresh.
	Refresh time.Duration
}

// dialFunc connects to a peer. The caller must close the connection.
type dialFunc func(ctx context.Context, p api.Peer, purpose link.Purpose) (rpc.Conn, error)

// Client is a client of a cluster. Its methods may be called from any goroutine, also
// concurrently. After Close they return errors that wrap [api.ErrClosed].
type Client struct {
	cfg             Config
	dialer          dialFunc
	jitter          func() float64 // returns a random number in [0, 1)
	ctx             context.Context
	cancel          context.CancelCauseFunc
	goroutines      sync.WaitGroup
	refreshRequests chan struct{} // receives a value if refreshMembership should query the membership soon; has capacity 1

	mu     sync.Mutex
	closed bool
	list   peerList
	conns  map[api.Peer]*conn
}

// New returns a client. It does not wait for a peer. The error wraps [api.ErrInvalid]. The
// client must be closed.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	dialer, err := newDialFunc(cfg)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, dialer, rand.Float64), nil
}

// withDefaults validates cfg, except for the authentication, and sets defaults.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Cluster == "" {
		return cfg, fmt.Errorf("%w: the Cluster is empty", api.ErrInvalid)
	}
	if len(cfg.Peers) == 0 {
		return cfg, fmt.Errorf("%w: Peers is empty", api.ErrInvalid)
	}
	for _, p := range cfg.Peers {
		if p.Addr == "" {
			return cfg, fmt.Errorf("%w: peer %q has no address", api.ErrInvalid, p.ID)
		}
	}
	secret := cfg.Secret
	if cfg.GetSecret != nil {
		secret = cfg.GetSecret()
	}
	if n := len(secret); n > 0 && n < link.MinSecret {
		return cfg, fmt.Errorf("%w: the Secret has %d bytes; at least %d random bytes are required", api.ErrInvalid, n, link.MinSecret)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		or    time.Duration
	}{{"RetryPause", &cfg.RetryPause, DefaultRetryPause}, {"CallTimeout", &cfg.CallTimeout, DefaultCallTimeout}} {
		if *d.value < 0 {
			return cfg, fmt.Errorf("%w: %s is %v: must be positive", api.ErrInvalid, d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = DefaultRefresh
	}
	return cfg, nil
}

// idleTimeout returns the time after which the client closes a connection if the peer sends nothing although a
// call waits for a reply.
func (cfg Config) idleTimeout() time.Duration { return 4 * cfg.CallTimeout }

func newClient(cfg Config, dialer dialFunc, jitter func() float64) *Client {
	c := &Client{
		cfg: cfg, dialer: dialer, jitter: jitter, refreshRequests: make(chan struct{}, 1),
		list: newPeerList(cfg.Peers), conns: map[api.Peer]*conn{},
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.goroutines.Go(c.refreshMembership)
	return c
}

// Close ends pending calls and subscriptions, and blocks until the client's goroutines have
// ended. It may be called repeatedly, and returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.cancel(fmt.Errorf("client of cluster %q: %w", c.cfg.Cluster, api.ErrClosed))
	c.mu.Unlock()
	c.goroutines.Wait()
	return nil
}

// startGoroutine runs f in a goroutine that Close waits for. It returns false after Close.
func (c *Client) startGoroutine(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.goroutines.Go(f)
	}
	return !c.closed
}

// randomPause returns a duration between a half and 1.5 times of RetryPause.
func (c *Client) randomPause() time.Duration {
	return time.Duration((0.5 + c.jitter()) * float64(c.cfg.RetryPause))
}

// sleep waits for the time d. If ctx is done or the client is closed before, it returns the cause.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}
