package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// raftlogLibrary is adapters/raftlog. All updates have different request IDs, by which the log detects
// duplicates; the other libraries do not do this. Without secret, connections are not encrypted, as
// in the other libraries. With secret they use TLS 1.3 and a secret, as in production.
type raftlogLibrary struct {
	secret bool
	window time.Duration // the deduplication window; 0 is the default
}

const libraryName = "adapters/raftlog"

func (raftlogLibrary) name() string { return libraryName }

func (l raftlogLibrary) settings() string {
	if l.secret {
		return "TLS 1.3 and a secret"
	}
	if l.window > 0 {
		return fmt.Sprintf("plain TCP, a window of %v", l.window)
	}
	return "plain TCP"
}

type libraryCluster struct {
	raftlogLibrary
	dir      string
	timeouts timeouts
	peers    []api.Peer
	nodes    [nodes]*raftlog.Node
	networks [nodes]*network
	counts   [nodes]updateCounter
}

func (l raftlogLibrary) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := &libraryCluster{raftlogLibrary: l, dir: dir, timeouts: t}
	for i := range nodes {
		var err error
		if c.networks[i], err = listen("127.0.0.1:0"); err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.peers = append(c.peers, api.Peer{ID: fmt.Sprint(i), Addr: c.networks[i].Addr().String()})
	}
	for i, p := range c.peers {
		var err error
		if c.nodes[i], err = c.open(p, c.networks[i], &c.counts[i]); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *libraryCluster) open(p api.Peer, n *network, machine *updateCounter) (*raftlog.Node, error) {
	cfg := raftlog.Config{
		Cluster: "bench", ID: p.ID, Addr: p.Addr, Peers: c.peers, Dir: filepath.Join(c.dir, p.ID), StateMachine: machine,
		Insecure: !c.secret, Listener: n, Dial: n.dial, Window: c.window,
	}
	if c.secret {
		cfg.Secret = []byte("at least sixteen bytes")
	}
	if c.timeouts == shortTimeouts {
		cfg.ElectionTimeout, cfg.Heartbeat = 200*time.Millisecond, 70*time.Millisecond
	}
	return raftlog.Open(cfg)
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

func (c *libraryCluster) growState(_ context.Context, node int, size int64) error {
	c.counts[node].size.Add(uint64(size))
	return nil
}

func (c *libraryCluster) snapshot(ctx context.Context, node int) error {
	_, err := c.nodes[node].Compact(ctx)
	return err
}

func (c *libraryCluster) restart(_ context.Context, node int) error {
	if err := c.halt(node); err != nil {
		return err
	}
	p := c.peers[node]
	n, err := listen(p.Addr)
	if err != nil {
		return err
	}
	c.counts[node].n.Store(0)
	c.networks[node] = n
	c.nodes[node], err = c.open(p, n, &c.counts[node])
	return err
}

func (c *libraryCluster) join(context.Context) (*learner, error) {
	n, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	machine := new(updateCounter)
	node, err := c.open(api.Peer{ID: "learner", Addr: n.Addr().String()}, n, machine)
	if err != nil {
		return nil, err
	}
	return &learner{machine.n.Load, node.Close}, nil
}

func (c *libraryCluster) read(ctx context.Context, node int) error { return c.nodes[node].Sync(ctx) }

func (c *libraryCluster) compact(ctx context.Context) error {
	return forAllNodes(func(i int) error {
		if err := c.snapshot(ctx, i); err != nil {
			return err
		}
		var err error
		for _, name := range c.nodes[i].PrunableFiles() {
			err = errors.Join(err, os.Remove(filepath.Join(c.dir, c.peers[i].ID, name)))
		}
		return err
	})
}

// listen returns the network of a node that listens at addr.
func listen(addr string) (*network, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &network{Listener: l, conns: map[net.Conn]struct{}{}}, nil
}

// network is the listener and the connections of a node. It can disconnect the node.
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

// updateCounter is a state machine that counts the updates.
type updateCounter struct{ countingState }

func (*updateCounter) LastApplied() (uint64, error) { return 0, nil }

func (u *updateCounter) Apply(entries []api.Entry, _ uint64) error {
	u.n.Add(uint64(len(entries)))
	return nil
}

func (u *updateCounter) Snapshot() (io.WriterTo, error)      { return u.captureState(), nil }
func (u *updateCounter) Restore(_ uint64, r io.Reader) error { return u.restore(r) }
