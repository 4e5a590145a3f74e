package zkdial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/transport"
)

var (
	// errRefused is the failure of a connection that a server has accepted and closed.
	errRefused = errors.New("the server closed the connection before it answered: it is not ready, or has older data than this client has seen")
	// errSilent is the failure of a connection that a server has accepted without an answer.
	errSilent = errors.New("the server accepted the connection and did not answer")
	errBroken = errors.New("the server closed the connection")
	errStuck  = errors.New("the server stopped answering")
	errAuth   = errors.New("the connection broke while credentials were sent")
)

// dialer opens the network connections of one *zk.Conn.
type dialer struct {
	requested     time.Duration // the session timeout that the client requests
	tls           *tls.Config   // nil disables TLS
	open          func(network, address string, timeout time.Duration) (net.Conn, error)
	log           *slog.Logger
	clientOptions []func(*zk.Conn)
	record        *connection.Record
	outage        outage
	servers       int // the number of servers in the list

	mu      sync.Mutex
	granted time.Duration // session timeout; 0 before the first session
	silent  int           // the number of servers that have not answered in time since the last answer
	// askAfter is the time until which servers that close a connection are not asked whether the
	// session has expired. askAfter is zero from each answer until the next server closes a connection.
	askAfter time.Time
}

// dial implements zk.Dialer.
func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	d.push(connection.Event{Kind: connection.Dialing, Server: address})
	d.outage.dial(address)
	start, limit := time.Now(), d.patience()
	timeout = min(timeout, limit)
	conn, err := d.connect(network, address, timeout)
	if err != nil {
		d.fail(address, err)
		return nil, err
	}
	redial := func() (net.Conn, error) { return d.connect(network, address, timeout) }
	return &handshakeConn{
		Conn: conn, dialer: d, address: address, redial: redial, timeout: timeout, deadline: start.Add(limit),
	}, nil
}

func (d *dialer) push(e connection.Event) { d.record.Push(e) }

// fail records that an attempt to get a session from a server has failed with err.
func (d *dialer) fail(address string, err error) {
	if isTimeout(err) || errors.Is(err, errSilent) {
		d.mu.Lock()
		d.silent++
		d.mu.Unlock()
	}
	d.push(connection.Event{Kind: connection.Failed, Server: address, Err: err})
	d.outage.fail(address, err)
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// shortestPatience is the shortest limit for the handshake with one server, unless the session
// timeout is less than three times as long.
const shortestPatience = time.Second

// patience returns how long to wait for the answer of one server. A client that has lost its server
// must reach another server before its session expires, even if one server accepts connections and does
// not answer: the client library would wait for that server for 6.7 session timeouts. The limit is
// doubled after each round in which no server has answered, so that clients can connect to servers
// that are slow.
func (d *dialer) patience() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	timeout := d.sessionTimeout()
	limit := max(timeout/time.Duration(3*d.servers), min(shortestPatience, timeout/3))
	for range min(d.silent/d.servers, 10) {
		limit *= 2
	}
	return min(limit, timeout*2/3)
}

// sessionTimeout returns the granted session timeout, or the requested one before the first session.
// The caller holds mu.
func (d *dialer) sessionTimeout() time.Duration {
	if d.granted == 0 {
		return d.requested
	}
	return d.granted
}

// connect opens a connection, with TLS if it is enabled.
func (d *dialer) connect(network, address string, timeout time.Duration) (net.Conn, error) {
	start := time.Now()
	conn, err := d.open(network, address, timeout)
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, transport.ForServer(d.tls, transport.Host(address)))
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(timeout))
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// recordAnswer records the answer of a server, which has granted a session if hasSession is true.
func (d *dialer) recordAnswer(a connectReply) (hasSession bool) {
	hasSession = a.session() != 0 && a.timeout() > 0
	d.mu.Lock()
	defer d.mu.Unlock()
	d.askAfter, d.silent = time.Time{}, 0
	if hasSession {
		d.granted = a.timeout()
	}
	return hasSession
}

// recordRefusal records that a server has closed a connection before it answered. It reports whether to
// ask the server whether the session has expired. Servers are asked only after servers have refused
// connections for longer than a session timeout.
func (d *dialer) recordRefusal() (ask bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.askAfter.IsZero() {
		d.askAfter = now.Add(d.sessionTimeout())
	}
	return now.After(d.askAfter)
}

// recordExtension records that a server has extended the session by its timeout when the dialer asked whether the
// session has expired. Servers are not asked again for two timeouts: if they were asked too often, the session
// would never expire. They expire it after its timeout and at most a tick, which is at most half of the timeout.
func (d *dialer) recordExtension(timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.askAfter = time.Now().Add(2 * timeout)
}

// handshakeConn is a connection that reads the handshake and pushes the events of the connection.
// During the handshake the client library reads and writes on one goroutine. After that it uses one
// goroutine for each, and Write and Read do not access the same fields.
type handshakeConn struct {
	net.Conn
	dialer   *dialer
	address  string
	redial   func() (net.Conn, error)
	timeout  time.Duration
	deadline time.Time // the deadline of the handshake; includes the time that dial has taken

	request connectRequest // the first request that the client library has written
	answer  connectReply   // the part of the answer that was read
	pending []byte         // unread part of an answer from another connection
	lost    bool           // the answer shows that the servers have lost their data

	established    atomic.Bool // a server has granted a session
	over           atomic.Bool // recordEnd has recorded the end of the connection
	authenticating atomic.Bool // reports that the packet that was written last contains credentials
}

// Close closes the connection, and then records the break. Requests that are sent after the break was
// recorded use the next connection.
func (c *handshakeConn) Close() error {
	err := c.Conn.Close()
	var reason error // usually nil, because the client library does not pass its reason to Close
	if c.authenticating.Load() {
		reason = errAuth
	}
	c.recordEnd(reason)
	return err
}

// recordEnd records the end of the connection, once. Each Read that fails calls it, and not only Close,
// because the client library can open the next connection before it closes this one.
func (c *handshakeConn) recordEnd(err error) {
	switch {
	case c.over.Swap(true):
	case c.established.Load():
		c.dialer.outage.recordBegin()
		c.dialer.push(connection.Event{Kind: connection.Broken, Server: c.address, Err: err})
	case err == nil: // no Read or Write has failed, so the client library has rejected the answer
		c.dialer.fail(c.address, errNotZooKeeper)
	case c.answer.missingBytes() > 0:
		c.dialer.fail(c.address, err)
	}
}

// abandon closes a connection with a session after a Read or Write has failed. Otherwise the other goroutine of
// the client library could be blocked in Write until its deadline, while the session expires.
func (c *handshakeConn) abandon(err error) {
	switch {
	case isTimeout(err):
		err = errStuck
	case errors.Is(err, io.EOF):
		err = errBroken
	}
	if c.authenticating.Load() {
		err = fmt.Errorf("%w: %w", errAuth, err)
	}
	c.Conn.Close()
	c.recordEnd(err)
}

// SetReadDeadline sets the read deadline, which is at the latest the deadline of the handshake until
// the session is established. The client library sets 6.7 session timeouts for the first part of the
// answer, and no deadline for the second part.
func (c *handshakeConn) SetReadDeadline(t time.Time) error {
	return c.Conn.SetReadDeadline(c.limitDeadline(t))
}

// SetWriteDeadline sets the write deadline, which is at the latest the deadline of the handshake until
// the session is established.
func (c *handshakeConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.limitDeadline(t))
}

func (c *handshakeConn) limitDeadline(t time.Time) time.Time {
	if !c.established.Load() && (t.IsZero() || t.After(c.deadline)) {
		return c.deadline
	}
	return t
}

// Write reports no error after the handshake: it closes the connection instead, so that the next Read
// fails. If Write failed, a request of the client library would be answered twice, with the error and
// when the connection ends. If the request contains credentials that are sent again, or was sent
// during Close, the client library would then block and never connect again.
func (c *handshakeConn) Write(b []byte) (int, error) {
	if !c.established.Load() {
		if c.request == nil {
			c.request = append(connectRequest{}, b...)
		}
		n, err := c.Conn.Write(b)
		if err != nil {
			c.recordEnd(err)
		}
		return n, err
	}
	op := packetOp(b)
	c.authenticating.Store(op == opAuth)
	if op == opCloseSession {
		// The servers delete the znodes of the session as soon as they receive this packet, so all grants must end
		// first.
		c.dialer.outage.close()
		c.dialer.push(connection.Event{Kind: connection.Closing, Server: c.address})
	}
	if _, err := c.Conn.Write(b); err != nil {
		c.abandon(err)
	}
	return len(b), nil
}

func (c *handshakeConn) Read(b []byte) (int, error) {
	missing := c.answer.missingBytes()
	if missing == 0 && len(c.pending) == 0 {
		n, err := c.Conn.Read(b)
		if err != nil {
			c.abandon(err)
		}
		return n, err
	}
	n, err := 0, error(nil)
	if len(c.pending) == 0 {
		n, err = c.Conn.Read(b)
		switch {
		case err == nil || n > 0:
		case isTimeout(err):
			c.recordEnd(errSilent)
		case len(c.answer) > 0:
			c.recordEnd(err)
		default:
			c.recordEnd(errRefused)
			if c.dialer.recordRefusal() {
				if c.pending = c.confirmExpiry(); len(c.pending) > 0 {
					// Close the connection here, because the client library does not do that if an answer says that
					// the session has expired.
					c.Conn.Close()
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
		if !c.answer.valid() { // the client library would allocate up to 4 GB for an answer with a wrong length
			return 0, errNotZooKeeper
		}
		if c.answer.missingBytes() == 0 {
			c.recordAnswer()
		}
	}
	return n, err
}

// recordAnswer records that the server has answered, and whether it has granted a session.
func (c *handshakeConn) recordAnswer() {
	if c.dialer.recordAnswer(c.answer) {
		c.established.Store(true)
		c.dialer.outage.recordEnd(c.address)
		c.dialer.push(connection.Event{
			Kind: connection.Established, Server: c.address, Session: c.answer.session(), Timeout: c.answer.timeout(),
		})
	} else if !c.lost {
		c.dialer.push(connection.Event{Kind: connection.Expired, Server: c.address, Session: c.request.session()})
	}
}

// confirmExpiry asks the server that has closed the connection whether the session has expired, and
// returns the server's answer if the session has expired. A server that has fewer transactions than
// the client has seen answers only clients that claim to have seen none. The request uses a separate
// connection, so that the client library never reads from a server with old data. A server that is
// not ready answers no client. A server that knows the session extends it.
func (c *handshakeConn) confirmExpiry() connectReply {
	session := c.request.session()
	if session == 0 || c.request.lastSeen() == 0 {
		return nil
	}
	answer, err := c.requestSession()
	log := c.dialer.log.With("server", c.address)
	switch {
	case err != nil:
		log.Debug("cannot determine whether the session has expired", "err", err)
	case answer.session() == 0:
		c.lost = true
		c.dialer.push(connection.Event{Kind: connection.Expired, Server: c.address, Session: session, Lost: true})
		log.Warn("the servers have lost their data: they know neither the session nor the transactions that this client has seen, so the session has expired",
			"session", fmt.Sprintf("%#x", uint64(session)), "transaction", fmt.Sprintf("%#x", uint64(c.request.lastSeen())))
		return answer
	default:
		// The server knows the session: the server lags behind, or was restored from a backup that contains the
		// session.
		c.dialer.recordExtension(answer.timeout())
	}
	return nil
}

// requestSession sends the client's request on a new connection, without the transaction that the
// client has seen.
func (c *handshakeConn) requestSession() (connectReply, error) {
	conn, err := c.redial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(c.request.withoutLastSeen()); err != nil {
		return nil, err
	}
	return readConnectReply(conn)
}
