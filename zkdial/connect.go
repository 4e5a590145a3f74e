package zkdial

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// ErrDataLost is wrapped by the errors of elections, in addition to
// leaderelection.ErrSessionExpired, if the servers do not know the session and have not seen
// transactions that this client has seen: they were rebuilt without their data or restored from a
// backup. It is detected only on connections of this package. Other connections are unusable after
// such a loss, and candidates on them wait indefinitely: open a new connection.
var ErrDataLost = connection.ErrDataLost

// Option configures [Connect].
type Option interface{ apply(*dialer) }

type optionFunc func(*dialer)

func (f optionFunc) apply(d *dialer) { f(d) }

// WithTLS makes connections use TLS. The server name is derived from each address unless
// config sets it. config must not be modified afterwards. A nil config disables TLS.
func WithTLS(config *tls.Config) Option { return optionFunc(func(d *dialer) { d.tls = config }) }

// WithDialer sets the function that opens network connections, for proxies and tests. The
// default is net.DialTimeout. dial must return within timeout, and must not be nil.
func WithDialer(dial func(network, address string, timeout time.Duration) (net.Conn, error)) Option {
	return optionFunc(func(d *dialer) { d.open = dial })
}

// WithLogger sets the logger. The default is the result of slog.Default when Connect is called. If
// the connection is without a session for two seconds, a warning names each server with the reason,
// once for each reason, and again at intervals that grow from ten seconds to an hour. Messages of
// the client library have the level Debug. slog.DiscardHandler suppresses all.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(d *dialer) { d.log = log }) }

// maxReply is the maximum size of a reply, unless WithClient sets another limit. Servers accept requests of 1 MiB by
// default. Lists of children can be larger, but are far smaller than maxReply. Without a limit, the client library
// allocates as many bytes as the beginning of a packet announces, even if the packet comes from a program that is
// not a ZooKeeper server.
const maxReply = 64 << 20

// WithClient passes options to the client library, such as zk.WithEventCallback and
// zk.WithMaxBufferSize, whose default is 64 MiB here. zk.WithDialer and zk.WithHostProvider are ignored; use
// [WithDialer].
func WithClient(options ...func(*zk.Conn)) Option {
	return optionFunc(func(d *dialer) { d.clientOptions = append(d.clientOptions, options...) })
}

const (
	shortestTimeout = 100 * time.Millisecond
	// longestTimeout is the longest timeout that the protocol transmits: it uses 32 bits, and milliseconds.
	longestTimeout = math.MaxInt32 * time.Millisecond
)

// Connect opens a connection like zk.Connect: it returns immediately, and the connection is
// established and maintained in the background until its Close. The channel delivers the
// events of the session; the caller does not need to receive from it. sessionTimeout is the
// timeout that is requested from the servers; [Granted] returns the timeout that they have
// granted.
//
// An element of servers is host:port, or a host for port 2181. Errors: [ErrServers], and
// leaderelection.ErrInvalid if sessionTimeout is less than 100 ms or more than 2³¹-1 ms
// (24 days), the longest that a client can request, or an option is nil.
func Connect(servers []string, sessionTimeout time.Duration, options ...Option) (*zk.Conn, <-chan zk.Event, error) {
	addresses, err := parseServers(servers)
	if err != nil {
		return nil, nil, err
	}
	d := &dialer{requested: sessionTimeout, servers: len(addresses), log: slog.Default(), open: net.DialTimeout}
	if sessionTimeout < shortestTimeout || sessionTimeout > longestTimeout {
		return nil, nil, fmt.Errorf("%w: session timeout %v: must be from %v to %v", connection.ErrInvalid, sessionTimeout, shortestTimeout, longestTimeout)
	}
	for _, o := range options {
		if o == nil {
			return nil, nil, fmt.Errorf("%w: an option is nil", connection.ErrInvalid)
		}
		o.apply(d)
	}
	if d.open == nil || d.log == nil || slices.ContainsFunc(d.clientOptions, func(o func(*zk.Conn)) bool { return o == nil }) {
		return nil, nil, fmt.Errorf("%w: WithDialer, WithLogger or WithClient: the argument is nil", connection.ErrInvalid)
	}
	d.outage.log = d.log
	return zk.Connect(addresses, sessionTimeout, func(conn *zk.Conn) {
		zk.WithLogger(clientLog{d.log})(conn)
		zk.WithLogInfo(false)(conn)
		zk.WithMaxBufferSize(maxReply)(conn)
		for _, o := range d.clientOptions {
			o(conn)
		}
		d.record = connection.RecordOf(conn)
		d.record.SetDialed()
		connection.DetectPauses(conn)
		zk.WithHostProvider(newHostProvider(addresses))(conn)
		zk.WithDialer(d.dial)(conn)
	})
}

// clientLog passes the log messages of the client library to a logger.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper: " + fmt.Sprintf(format, args...))
}

// Granted returns the session timeout that the servers have granted to conn in the last
// handshake, or 0 if it is unknown. For a connection that was opened without this package,
// it reads a private field of the client library, which works with go-zookeeper 1.0.4
// while the connection has a session.
func Granted(conn *zk.Conn) time.Duration { return connection.Granted(conn) }

// Wait blocks until conn has a session, and returns the session timeout that was granted,
// or 0 if it cannot be determined. If ctx is done first, the error wraps
// leaderelection.ErrUnreachable and the cause of ctx, and names the server that has failed
// and the reason if conn was opened by [Connect].
func Wait(ctx context.Context, conn *zk.Conn) (granted time.Duration, err error) {
	const interval = 10 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for conn.State() != zk.StateHasSession {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			err := fmt.Errorf("%w: %w", connection.ErrUnreachable, context.Cause(ctx))
			if failure := connection.RecordOf(conn).Facts().Failure; failure != nil {
				err = fmt.Errorf("%w: %w", err, failure)
			}
			return 0, err
		}
	}
	return Granted(conn), nil
}
