package zktest

import (
	"net"
	"slices"
	"syscall"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"
)

// Dialer returns a dialer that makes in-memory connections to this server for every
// address. Pass it to [zk.WithDialer], together with [HostProvider], which does not
// resolve names. [Server.Connect] does both. In a synctest bubble such a connection uses
// fake time.
func (s *Server) Dialer() zk.Dialer {
	return func(_, address string, _ time.Duration) (net.Conn, error) { return s.dial(address) }
}

func (s *Server) dial(address string) (net.Conn, error) {
	client, server := newPipe()
	if err := s.accept(server); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "zktest", Addr: pipeAddr(address), Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

type pipeAddr string

func (pipeAddr) Network() string { return "zktest" }

func (a pipeAddr) String() string { return string(a) }

// Connect connects a go-zookeeper client with the in-memory [Server.Dialer], inside and
// outside of synctest bubbles. The options are those of [zk.Connect]. The client is closed
// together with the server. The client logs nothing unless an option sets a logger. After
// [Server.Close], Connect returns [net.ErrClosed]; there are no other errors.
func (s *Server) Connect(timeout time.Duration, opts ...func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	return s.e.connectClient([]*Server{s}, timeout, opts)
}

func (e *ensemble) connectClient(to []*Server, timeout time.Duration, opts []func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	if !e.addClient(nil) {
		return nil, nil, net.ErrClosed
	}
	names := make([]string, len(to))
	for i, s := range to {
		names[i] = s.Name()
	}
	c, events, err := zk.Connect(names, timeout, func(c *zk.Conn) {
		c.SetLogger(silentLogger{})
		zk.WithLogInfo(false)(c)
		zk.WithHostProvider(HostProvider(names...))(c)
		zk.WithDialer(e.dial)(c)
		for _, o := range opts {
			o(c)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if !e.addClient(c) { // the servers were closed in the meantime
		c.Close()
		return nil, nil, net.ErrClosed
	}
	return c, events, nil
}

// addClient registers c, so that the servers close it. It returns false if the servers are closed already. The
// servers must close c, because the goroutines of a client that is not closed keep the client in memory.
func (e *ensemble) addClient(c *zk.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c != nil && !e.closing {
		e.clients = slices.DeleteFunc(e.clients, func(w weak.Pointer[zk.Conn]) bool { return w.Value() == nil })
		e.clients = append(e.clients, weak.Make(c))
	}
	return !e.closing
}

// dial connects to the server with the given name or TCP address.
func (e *ensemble) dial(_, address string, _ time.Duration) (net.Conn, error) {
	for _, s := range e.servers {
		if s.Name() == address || s.tcpAddr() == address {
			return s.dial(address)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "zktest", Addr: pipeAddr(address), Err: syscall.EHOSTUNREACH}
}

// silentLogger discards what the client library logs.
type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}
