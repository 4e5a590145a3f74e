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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// library is adapters/raftlog. Every update has a request ID of its own, which is what that
// library does for it beside the others. The peers are compared without encryption, as the
// others are; secret has TLS 1.3 and a secret, which is what its users have.
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
	nodes  [nodes]*raftlog.Node
	nets   [nodes]*cuttable
	counts [nodes]updates
}

func (l library) start(_ context.Context, dir string, t timeouts) (cluster, error) {
	c := new(libraryCluster)
	var peers []api.Peer
	for i := range nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.nets[i] = &cuttable{Listener: listener, conns: map[net.Conn]struct{}{}}
		peers = append(peers, api.Peer{ID: fmt.Sprint(i), Addr: listener.Addr().String()})
	}
	for i, p := range peers {
		cfg := raftlog.Config{
			Cluster: "bench", ID: p.ID, Addr: p.Addr, Peers: peers, Dir: filepath.Join(dir, p.ID), StateMachine: &c.counts[i],
			Insecure: !l.secret, Listener: c.nets[i], Dial: c.nets[i].dial,
		}
		if l.secret {
			cfg.Secret = []byte("sixteen bytes or more of it")
		}
		if t == quick {
			cfg.ElectionTimeout, cfg.Heartbeat = 200*time.Millisecond, 70*time.Millisecond
		}
		var err error
		if c.nodes[i], err = raftlog.Open(cfg); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *libraryCluster) leads(node int) bool { return c.nodes[node].Info().Role == "leader" }

func (c *libraryCluster) propose(ctx context.Context, node int, data []byte) error {
	_, err := c.nodes[node].Propose(ctx, requestid.New(), data)
	return err
}

func (c *libraryCluster) applied(node int) uint64 { return c.counts[node].n.Load() }

// halt takes the node off the network first, since Close hands over.
func (c *libraryCluster) halt(node int) error {
	c.nets[node].cut()
	return c.nodes[node].Close()
}

func (c *libraryCluster) stop() error {
	var err error
	for i, n := range c.nodes {
		if n != nil {
			err = errors.Join(err, n.Close())
		} else if c.nets[i] != nil {
			err = errors.Join(err, c.nets[i].Close())
		}
	}
	return err
}

// cuttable is a listener whose node can be taken off the network.
type cuttable struct {
	net.Listener
	mu    sync.Mutex
	off   bool
	conns map[net.Conn]struct{}
}

func (c *cuttable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := c.keep(conn); err != nil {
		return nil, err
	}
	return conn, nil
}

func (c *cuttable) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := c.keep(conn); err != nil {
		return nil, err
	}
	return conn, nil
}

func (c *cuttable) keep(conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	c.conns[conn] = struct{}{}
	return nil
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	for conn := range c.conns {
		conn.Close()
	}
}

// updates is a state machine that counts.
type updates struct{ n atomic.Uint64 }

func (*updates) LastApplied() (uint64, error) { return 0, nil }

func (u *updates) Apply(entries []api.Entry, _ uint64) error {
	u.n.Add(uint64(len(entries)))
	return nil
}

func (u *updates) Snapshot() (io.WriterTo, error) { return u, nil }
func (*updates) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (*updates) Restore(uint64, io.Reader) error  { return nil }
