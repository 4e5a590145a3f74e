package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// network contains the connections of one candidate. The candidate dials through it, because a proxy
// between client and server would increase the latency. crash closes the connections and prevents
// new ones.
type network struct {
	mu      sync.Mutex
	crashed bool
	conns   []net.Conn
}

var errCrashed = errors.New("no new connection: the crash of this candidate is simulated")

func (n *network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.crashed {
		conn.Close()
		return nil, errCrashed
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

func (n *network) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return n.DialContext(ctx, network, address)
}

func (n *network) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.crashed = true
	for _, conn := range n.conns {
		conn.Close()
	}
}
