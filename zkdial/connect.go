package zkdial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/handshake"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
)

// Option changes how [Connect] works.
type Option func(*dialer)

// WithTLS has connections use TLS. The name of a server is taken from its address unless
// config sets it. config must not be nil, and not be changed afterwards.
func WithTLS(config *tls.Config) Option { return func(d *dialer) { d.tls = config } }

// WithDialer sets the function that opens network connections, for proxies and tests. By
// default it is the standard library's. It must return within timeout.
func WithDialer(dial func(network, address string, timeout time.Duration) (net.Conn, error)) Option {
	return func(d *dialer) { d.open = dial }
}

// WithLogger sets where the client library and this package log; by default nothing is
// logged.
func WithLogger(log *slog.Logger) Option { return func(d *dialer) { d.log = log } }

// WithClient passes on options of the client library, such as zk.WithEventCallback and
// zk.WithMaxBufferSize. zk.WithDialer and zk.WithHostProvider are not allowed among
// them: they would replace those of Connect. Use [WithDialer].
func WithClient(options ...func(*zk.Conn)) Option {
	return func(d *dialer) { d.client = append(d.client, options...) }
}

// Connect opens a connection as zk.Connect does: it returns at once, and the connection
// is made and kept up in the background until its Close. The channel gets the session's
// events; it need not be read. sessionTimeout is what the servers are asked for; see
// [Granted] for the timeout that they grant.
//
// An element of servers is host:port, or host alone for port 2181. The errors are
// [ErrServers], and leaderelection.ErrInvalidOption for a sessionTimeout below 100 ms
// and for options that are nil.
func Connect(servers []string, sessionTimeout time.Duration, options ...Option) (*zk.Conn, <-chan zk.Event, error) {
	addresses, err := parse(servers)
	if err != nil {
		return nil, nil, err
	}
	d := &dialer{asked: sessionTimeout, log: slog.New(slog.DiscardHandler), open: net.DialTimeout}
	if sessionTimeout < 100*time.Millisecond {
		return nil, nil, fmt.Errorf("%w: a session timeout of %v: at least 100ms are needed", sentinel.ErrInvalidOption, sessionTimeout)
	}
	for _, o := range options {
		if o == nil {
			return nil, nil, fmt.Errorf("%w: it is nil", sentinel.ErrInvalidOption)
		}
		o(d)
	}
	if d.open == nil || d.log == nil || slices.ContainsFunc(d.client, func(o func(*zk.Conn)) bool { return o == nil }) {
		return nil, nil, fmt.Errorf("%w: WithDialer, WithLogger or WithClient: nil", sentinel.ErrInvalidOption)
	}
	return zk.Connect(addresses, sessionTimeout, func(conn *zk.Conn) {
		zk.WithLogger(clientLog{d.log})(conn)
		zk.WithLogInfo(false)(conn)
		for _, o := range d.client {
			o(conn)
		}
		d.record = handshake.Of(conn)
		session.Attend(conn)
		zk.WithHostProvider(newHosts(addresses))(conn)
		zk.WithDialer(d.dial)(conn)
	})
}

// clientLog is the client library's log.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Warn("zookeeper: " + fmt.Sprintf(format, args...))
}

// Granted returns the session timeout that the servers have granted to conn with the
// last handshake, and 0 as long as that is not known. It works for connections that were
// opened without this package, too, while they have a session, as long as the client
// library keeps the timeout in the field in which it does today.
func Granted(conn *zk.Conn) time.Duration { return handshake.Granted(conn) }

// Wait waits until conn has its first session, or has one again, and returns the
// session timeout that is granted; 0 if that cannot be determined. The error wraps
// leaderelection.ErrUnreachable and the cause of ctx's end, and says which server failed,
// and why, if conn was opened by [Connect].
func Wait(ctx context.Context, conn *zk.Conn) (granted time.Duration, err error) {
	const interval = 10 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for conn.State() != zk.StateHasSession {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			err := fmt.Errorf("%w: %w", sentinel.ErrUnreachable, context.Cause(ctx))
			if failure := handshake.Of(conn).Failure(); failure != nil {
				err = fmt.Errorf("%w: %w", err, failure)
			}
			return 0, err
		}
	}
	return Granted(conn), nil
}

// errClosed is the failure of a connection that a server accepts and closes.
var errClosed = errors.New("the server closed the connection before it answered: it is not ready, or has older data than this client has seen")
