package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// library is adapters/raftlog. Every update has a different request ID, by which the log detects
// duplicates; the other libraries do not do this. Without secret, connections are not encrypted, as in
// the other libraries. With secret they use TLS 1.3 and a secret, as production systems do.
type library struct{ secret bool }

const libraryName = "adapters/raftlog"

func (library) name() string { return libraryName }

func (l library) settings() string {
	if l.secret {
		return "TLS 1.3 and a secret"
	}
	return "plain TCP"
}

type libraryCluster struct {
	nodes    [nodes]*raftlog.Node
	networks [nodes]*network
	counts   [nodes]updates
}

func (l library) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := new(libraryCluster)
	var peers []api.Peer
	for i := range nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.networks[i] = &network{Listener: listener, conns: map[net.Conn]struct{}{}}
		peers = append(peers, api.Peer{ID: fmt.Sprint(i), Addr: listener.Addr().String()})
	}
	for i, p := range peers {
		cfg := raftlog.Config{
			Cluster: "bench", ID: p.ID, Addr: p.Addr, Peers: peers, Dir: filepath.Join(dir, p.ID), StateMachine: &c.counts[i],
			Insecure: !l.secret, Listener: c.networks[i], Dial: c.networks[i].dial,
		}
		if l.secret {
			cfg.Secret = []byte("at least sixteen bytes")
		}
		if t == shortTimeouts {
			cfg.ElectionTimeout, cfg.Heartbeat = 200*time.Millisecond, 70*time.Millisecond
		}
		var err error
		if c.nodes[i], err = raftlog.Open(cfg); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *libraryCluster) isLeader(node int) bool { return c.nodes[node].Info().Role == "leader" }

func (c *libraryCluster) propose(ctx context.Context, node int, data []byte) error {
	_, err := c.nodes[node].Propose(ctx, api.NewRequestID(), data)
	return err
}

func (c *libraryCluster) applied(node int) uint64 { return c.counts[node].n.Load() }

// halt disconnects the node and then closes it: the Close of a connected node would transfer the
// leadership.
func (c *libraryCluster) halt(node int) error {
	c.networks[node].disconnect()
	return c.nodes[node].Close()
}

func (c *libraryCluster) stop() error {
	var err error
	for i, n := range c.nodes {
		if n != nil {
			err = errors.Join(err, n.Close())
		} else if c.networks[i] != nil {
			err = errors.Join(err, c.networks[i].Close())
		}
	}
	return err
}

// network is the listener and the connections of a node, which can be disconnected.
type network struct {
	net.Listener
	mu           sync.Mutex
	disconnected bool
	conns        map[net.Conn]struct{}
}

func (n *network) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := n.add(conn); err != nil {
		return nil, err
	}
	return conn, nil
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := n.add(conn); err != nil {
		return nil, err
	}
	return conn, nil
}

func (n *network) add(conn net.Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disconnected {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	n.conns[conn] = struct{}{}
	return nil
}

func (n *network) disconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disconnected = true
	for conn := range n.conns {
		conn.Close()
	}
}

// updates is a state machine that counts the updates.
type updates struct{ n atomic.Uint64 }

func (*updates) LastApplied() (uint64, error) { return 0, nil }

func (u *updates) Apply(entries []api.Entry, _ uint64) error {
	u.n.Add(uint64(len(entries)))
	return nil
}

func (u *updates) Snapshot() (io.WriterTo, error) { return u, nil }
func (*updates) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (*updates) Restore(uint64, io.Reader) error  { return nil }
