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
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// dialer opens the network connections of one *zk.Conn.
type dialer struct {
	asked  time.Duration
	tls    *tls.Config // nil without
	open   func(network, address string, timeout time.Duration) (net.Conn, error)
	log    *slog.Logger
	client []func(*zk.Conn)
	record *handshake.Record

	mu      sync.Mutex
	granted time.Duration // 0 before the first session
	refused time.Time     // when a server first closed a connection, since the last session
}

// dial is the client library's dialer.
func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := d.connect(network, address, timeout)
	if err != nil {
		d.record.Fail(fmt.Errorf("%s: %w", address, err))
		return nil, err
	}
	again := func() (net.Conn, error) { return d.connect(network, address, timeout) }
	return &link{Conn: conn, dialer: d, address: address, again: again, limit: timeout}, nil
}

func (d *dialer) connect(network, address string, timeout time.Duration) (net.Conn, error) {
	begin := time.Now()
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
	ctx, cancel := context.WithDeadline(context.Background(), begin.Add(timeout))
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// grant notes a server's answer.
func (d *dialer) grant(a handshake.Answer) {
	d.mu.Lock()
	d.refused = time.Time{}
	if a.Session() != 0 && a.Timeout() > 0 {
		d.granted = a.Timeout()
	}
	d.mu.Unlock()
	if a.Session() != 0 && a.Timeout() > 0 {
		d.record.Grant(a.Timeout())
	}
}

// refuse notes that a server has closed a connection before it answered. It reports
// whether there has been no session for longer than a session timeout.
func (d *dialer) refuse() (long bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.refused.IsZero() {
		d.refused = now
	}
	timeout := d.granted
	if timeout == 0 {
		timeout = d.asked
	}
	return now.Sub(d.refused) > timeout
}

// link is a connection that reads the handshake. Until that is over, the client library
// reads and writes on one goroutine; after that there is one for each, and Write and
// Read have no field in common.
type link struct {
	net.Conn
	*dialer
	address string
	again   func() (net.Conn, error)
	limit   time.Duration

	request handshake.Request // the first that was written
	answer  handshake.Answer  // as much of it as has been read
	rest    []byte            // of an answer that came on another connection
}

func (l *link) Write(b []byte) (int, error) {
	if l.request == nil {
		l.request = append(handshake.Request{}, b...)
	}
	return l.Conn.Write(b)
}

func (l *link) Read(b []byte) (int, error) {
	missing := l.answer.Missing()
	if missing == 0 && len(l.rest) == 0 {
		return l.Conn.Read(b)
	}
	n, err := 0, error(nil)
	if len(l.rest) == 0 {
		n, err = l.Conn.Read(b)
		if n == 0 && len(l.answer) == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.record.Fail(fmt.Errorf("%s: %w", l.address, errClosed))
			if l.refuse() {
				if l.rest = l.verdict(); len(l.rest) > 0 {
					l.Conn.Close() // the client library does not, after the end of a session
				}
			}
		}
	}
	if len(l.rest) > 0 {
		n, err = copy(b, l.rest), nil
		l.rest = l.rest[n:]
	}
	if missing > 0 && n > 0 {
		l.answer = append(l.answer, b[:min(n, missing)]...)
		if l.answer.Missing() == 0 {
			l.grant(l.answer)
		}
	}
	return n, err
}

// verdict asks the server that has just closed the connection whether the session is
// over, and returns its answer if it is. A server that has data, but not as many
// transactions as the client has seen, answers only a client that claims to have seen
// none. It is asked on a separate connection, so that the client library never reads
// from a server that lags behind. A server that is not ready answers no client.
func (l *link) verdict() handshake.Answer {
	session := l.request.Session()
	if session == 0 || l.request.LastSeen() == 0 {
		return nil
	}
	answer, err := l.ask()
	switch {
	case err != nil:
		l.log.Debug("cannot determine whether the session has expired", "server", l.address, "err", err)
	case answer.Session() == 0:
		l.record.Lose(session)
		l.log.Warn("the servers have lost their data: they know neither the session nor the transactions that this client has seen, so the session has expired",
			"server", l.address, "session", fmt.Sprintf("%#x", uint64(session)), "transaction", fmt.Sprintf("%#x", uint64(l.request.LastSeen())))
		return answer
	}
	return nil // it knows the session and only lags behind
}

func (l *link) ask() (handshake.Answer, error) {
	conn, err := l.again()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(l.limit)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(l.request.Forgetful()); err != nil {
		return nil, err
	}
	return handshake.ReadAnswer(conn)
}
