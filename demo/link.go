package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

var errLinkDown = errors.New("the demo has interrupted the network")

// link is the network between one participant and ZooKeeper, which the demo can interrupt. Its method dial
// is a zk.Dialer.
type link struct {
	mu          sync.Mutex
	partitioned bool
	closed      bool
	conns       map[*linkConn]struct{}
}

func newLink() *link { return &link{conns: map[*linkConn]struct{}{}} }

func (l *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if l.isDown() {
		return nil, errLinkDown
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.partitioned || l.closed {
		conn.Close()
		return nil, errLinkDown
	}
	c := &linkConn{Conn: conn, link: l}
	l.conns[c] = struct{}{}
	return c, nil
}

func (l *link) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partitioned || l.closed
}

// partition makes the link drop all data. Connections remain open.
func (l *link) partition() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitioned = true
}

// heal ends a partition. It closes the connections, because data was lost.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitioned = false
	l.closeConns()
}

// close closes the connections permanently, as the operating system does when a process is killed. The
// session is not closed.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.closeConns()
}

// closeConns closes the connections. The caller must hold mu.
func (l *link) closeConns() {
	for c := range l.conns {
		c.Conn.Close()
		delete(l.conns, c)
	}
}

// linkConn is a connection over a link.
type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.link.isDown() {
			return n, err
		}
	}
}

func (c *linkConn) Write(p []byte) (int, error) {
	if c.link.isDown() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *linkConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
