package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// link is the network between one participant and ZooKeeper, which the demo can interrupt. Its method dial
// is a zk.Dialer.
type link struct {
	mu          sync.Mutex
	partitioned bool // whether all data is dropped, while connections remain open
	closed      bool
	conn        net.Conn // the last connection that was opened
}

func (l *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.partitioned || l.closed {
		conn.Close()
		return nil, errors.New("the demo has interrupted the network")
	}
	l.conn = conn
	return &linkConn{conn, l}, nil
}

// setPartitioned begins or ends a partition. When a partition ends, it closes the connection, because
// data was lost.
func (l *link) setPartitioned(partitioned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitioned = partitioned
	if !partitioned && l.conn != nil {
		l.conn.Close()
	}
}

// close closes the connection permanently, as the operating system does when a process is killed.
// ZooKeeper is not asked to close the session.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Close()
	}
}

// linkConn is a connection over a link.
type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) isPartitioned() bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.link.partitioned
}

func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.isPartitioned() {
			return n, err
		}
	}
}

func (c *linkConn) Write(p []byte) (int, error) {
	if c.isPartitioned() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
