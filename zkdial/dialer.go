package zkdial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// errClosed is the failure of a connection that a server has accepted and closed.
var errClosed = errors.New("the server closed the connection before it answered: it is not ready, or has older data than this client has seen")

// dialer opens the network connections of one *zk.Conn.
type dialer struct {
	requested     time.Duration // session timeout
	tls           *tls.Config   // nil disables TLS
	open          func(network, address string, timeout time.Duration) (net.Conn, error)
	log           *slog.Logger
	clientOptions []func(*zk.Conn)
	record        *handshake.Record

	mu      sync.Mutex
	granted time.Duration // session timeout; 0 before the first session
	// askAfter is the time until which servers that close a connection are not asked whether the
	// session has expired. It is zero until the first of them after an answer.
	askAfter time.Time
}

// dial implements zk.Dialer.
func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := d.connect(network, address, timeout)
	if err != nil {
		d.record.Fail(fmt.Errorf("%s: %w", address, err))
		return nil, err
	}
	redial := func() (net.Conn, error) { return d.connect(network, address, timeout) }
	return &handshakeConn{Conn: conn, dialer: d, address: address, redial: redial, timeout: timeout}, nil
}

// connect opens a connection, with TLS if it is enabled.
func (d *dialer) connect(network, address string, timeout time.Duration) (net.Conn, error) {
	start := time.Now()
	conn, err := d.open(network, address, timeout)
	if err != nil || d.tls == nil {
		return conn, err
	}
	config := d.tls
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config = config.Clone()
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(timeout))
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// recordAnswer records the answer of a server, and the session timeout if the server has granted a
// session. It reports whether the server has done so.
func (d *dialer) recordAnswer(a handshake.Answer) (hasSession bool) {
	hasSession = a.Session() != 0 && a.Timeout() > 0
	d.mu.Lock()
	d.askAfter = time.Time{}
	if hasSession {
		d.granted = a.Timeout()
	}
	d.mu.Unlock()
	if hasSession {
		d.record.Grant(a.Timeout())
	}
	return hasSession
}

// recordRefusal records that a server has closed a connection before it answered. It reports whether
// to ask the server whether the session has expired. That is the case after servers have refused
// connections for longer than a session timeout.
func (d *dialer) recordRefusal() (ask bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.askAfter.IsZero() {
		timeout := d.granted
		if timeout == 0 {
			timeout = d.requested
		}
		d.askAfter = now.Add(timeout)
	}
	return now.After(d.askAfter)
}

// recordExtension records that a server has extended the session by its timeout because it was asked.
// If servers were asked too often, the session would never expire. They expire it after its timeout
// and at most a tick, which is at most half of the timeout.
func (d *dialer) recordExtension(timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.askAfter = time.Now().Add(2 * timeout)
}

// handshakeConn is a connection that reads the handshake. During the handshake the client library
// reads and writes on one goroutine. After that it uses one goroutine for each, and Write and Read
// do not access the same fields.
type handshakeConn struct {
	net.Conn
	dialer  *dialer
	address string
	redial  func() (net.Conn, error)
	timeout time.Duration

	request handshake.Request // the first request that the client library has written
	answer  handshake.Answer  // the part of the answer that was read
	pending []byte            // unread part of an answer from another connection

	hasSession atomic.Bool // a server has granted a session, and Close was not called
}

// Close closes the connection, and then records the break. Requests that are sent after the break was
// recorded use the next connection.
func (c *handshakeConn) Close() error {
	err := c.Conn.Close()
	c.recordBreak()
	return err
}

// recordBreak records the end of the connection if there was a session. The client library can open the
// next connection before it closes this one, but not before a Read has failed or Close was called.
func (c *handshakeConn) recordBreak() {
	if c.hasSession.Swap(false) {
		c.dialer.record.Break()
	}
}

func (c *handshakeConn) Write(b []byte) (int, error) {
	if c.request == nil {
		c.request = append(handshake.Request{}, b...)
	}
	return c.Conn.Write(b)
}

func (c *handshakeConn) Read(b []byte) (int, error) {
	missing := c.answer.Missing()
	if missing == 0 && len(c.pending) == 0 {
		n, err := c.Conn.Read(b)
		if err != nil {
			c.recordBreak()
		}
		return n, err
	}
	n, err := 0, error(nil)
	if len(c.pending) == 0 {
		n, err = c.Conn.Read(b)
		if n == 0 && len(c.answer) == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.dialer.record.Fail(fmt.Errorf("%s: %w", c.address, errClosed))
			if c.dialer.recordRefusal() {
				if c.pending = c.confirmExpiry(); len(c.pending) > 0 {
					c.Conn.Close() // the client library does not close it after the session has expired
				}
			}
		}
	}
	if len(c.pending) > 0 {
		n, err = copy(b, c.pending), nil
		c.pending = c.pending[n:]
	}
	if missing > 0 && n > 0 {
		c.answer = append(c.answer, b[:min(n, missing)]...)
		if c.answer.Missing() == 0 {
			c.hasSession.Store(c.dialer.recordAnswer(c.answer))
		}
	}
	return n, err
}

// confirmExpiry asks the server that has closed the connection whether the session has expired, and
// returns the server's answer if it has. A server that has fewer transactions than the client has
// seen answers only clients that claim to have seen none. The request uses a separate connection, so
// that the client library never reads from a server with old data. A server that is not ready answers
// no client. A server that knows the session extends it.
func (c *handshakeConn) confirmExpiry() handshake.Answer {
	session := c.request.Session()
	if session == 0 || c.request.LastSeen() == 0 {
		return nil
	}
	answer, err := c.requestSession()
	log := c.dialer.log.With("server", c.address)
	switch {
	case err != nil:
		log.Debug("cannot determine whether the session has expired", "err", err)
	case answer.Session() == 0:
		c.dialer.record.Lose(session)
		log.Warn("the servers have lost their data: they know neither the session nor the transactions that this client has seen, so the session has expired",
			"session", fmt.Sprintf("%#x", uint64(session)), "transaction", fmt.Sprintf("%#x", uint64(c.request.LastSeen())))
		return answer
	default:
		// The server lags behind, or was restored from a backup that contains the session.
		c.dialer.recordExtension(answer.Timeout())
	}
	return nil
}

// requestSession sends the client's request on a new connection, without the transaction that the
// client has seen.
func (c *handshakeConn) requestSession() (handshake.Answer, error) {
	conn, err := c.redial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(c.request.Forgetful()); err != nil {
		return nil, err
	}
	return handshake.ReadAnswer(conn)
}
