package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// demo is a cluster of three peers in one process.
type demo struct {
	out     io.Writer
	configs []raftlog.Config
	peers   []*peer
}

// runDemo starts three peers, writes keys, runs an election, and closes the peers.
func runDemo(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "raftlog-kv-")
	if err != nil {
		return err
	}
	d := &demo{out: out}
	defer func() {
		for _, p := range d.peers {
			err = errors.Join(err, p.node.Close())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err := d.startPeers(dir); err != nil {
		return err
	}
	if err := d.writeKeys(ctx); err != nil {
		return err
	}
	return d.runElection(ctx)
}

func (d *demo) print(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// startPeers starts three peers on free ports.
func (d *demo) startPeers(dir string) error {
	var peers []api.Peer
	var listeners []net.Listener
	for _, id := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		peers = append(peers, api.Peer{ID: id, Addr: l.Addr().String()})
	}
	secret := []byte(rand.Text())
	for i, self := range peers {
		cfg := raftlog.Config{
			Cluster: "example", ID: self.ID, Addr: self.Addr, Peers: peers, Dir: filepath.Join(dir, self.ID),
			Secret: secret, ElectionTimeout: 300 * time.Millisecond,
		}
		d.configs = append(d.configs, cfg)
		cfg.Listener = listeners[i]
		p, err := openPeer(cfg)
		if err != nil {
			return err
		}
		d.peers = append(d.peers, p)
		d.print("peer %s listens", self.ID)
	}
	return nil
}

// waitForLeader waits until a peer leads the log, and returns its index in d.peers.
func (d *demo) waitForLeader(ctx context.Context) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for i, p := range d.peers {
			if info := p.node.Info(); info.Role == "leader" && info.Lease > 0 {
				return i, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// writeKeys writes keys at all peers, repeats a write with the same request ID, and restarts the leader.
func (d *demo) writeKeys(ctx context.Context) error {
	leader, err := d.waitForLeader(ctx)
	if err != nil {
		return err
	}
	d.print("%s leads the log", d.configs[leader].ID)
	for i, line := range []string{"set apples 3", "set pears 5", "set plums 8", "delete pears"} {
		result, err := d.peers[i%3].runCommand(ctx, line)
		if err != nil {
			return err
		}
		d.print("%s: %s: %s", d.configs[i%3].ID, line, result)
	}
	id, next := api.NewRequestID(), (leader+1)%3
	for _, at := range []int{leader, next} {
		index, err := d.peers[at].proposeUpdate(ctx, id, update{Key: "figs", Value: "1"})
		if err != nil {
			return err
		}
		d.print("%s: set figs 1, request %s: entry %d", d.configs[at].ID, id, index)
	}
	if err := d.printMap(ctx, next); err != nil {
		return err
	}

	if err := d.peers[leader].node.Close(); err != nil {
		return err
	}
	d.print("%s was closed", d.configs[leader].ID)
	if err := d.printMap(ctx, next); err != nil {
		return err
	}
	restarted, err := openPeer(d.configs[leader])
	if err != nil {
		return err
	}
	d.peers[leader] = restarted
	d.print("%s was restarted from its disk", d.configs[leader].ID)
	return d.printMap(ctx, leader)
}

// printMap prints the map of the peer d.peers[at].
func (d *demo) printMap(ctx context.Context, at int) error {
	all, err := d.peers[at].runCommand(ctx, "list")
	d.print("%s has: %s", d.configs[at].ID, all)
	return err
}

// runElection makes each peer join an election, lead it, and resign.
func (d *demo) runElection(ctx context.Context) error {
	for i := range d.peers {
		e, err := raftlog.NewElection(d.peers[i].node, "harvest", raftlog.WithContext(ctx), raftlog.WithName(d.configs[i].ID))
		if err != nil {
			return err
		}
		result := make(chan error, 1)
		go func() { result <- e.ElectLeader() }()
		for status := range e.Status() {
			if status.Role == leaderelection.Leader {
				d.print("%s leads the harvest, token %d, and resigns", d.configs[i].ID, status.Leadership.Token())
				if err := e.Resign(); err != nil {
					return err
				}
			}
		}
		if err := <-result; err != nil {
			return err
		}
	}
	return nil
}
