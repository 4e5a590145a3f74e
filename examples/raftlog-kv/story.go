package main

// Three peers in one process, and what becomes of them.

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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

type story struct {
	out     io.Writer
	configs []raftlog.Config
	peers   []*peer
}

// tell runs the story, and ends everything.
func tell(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "raftlog-kv-")
	if err != nil {
		return err
	}
	s := &story{out: out}
	defer func() {
		for _, p := range s.peers {
			err = errors.Join(err, p.Close())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err := s.begin(dir); err != nil {
		return err
	}
	if err := s.write(ctx); err != nil {
		return err
	}
	return s.elect(ctx)
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// begin starts three peers on free ports.
func (s *story) begin(dir string) error {
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
		s.configs = append(s.configs, cfg)
		cfg.Listener = listeners[i]
		p, err := open(cfg)
		if err != nil {
			return err
		}
		s.peers = append(s.peers, p)
		s.say("peer %s listens", self.ID)
	}
	return nil
}

// leader waits until a peer leads the log.
func (s *story) leader(ctx context.Context) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for i, p := range s.peers {
			if info := p.Info(); info.Role == "leader" && info.Lease > 0 {
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

// write writes at any peer, and has the leader's process end.
func (s *story) write(ctx context.Context) error {
	leads, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.say("%s leads the log", s.configs[leads].ID)
	for i, line := range []string{"set apples 3", "set pears 5", "set plums 8", "delete pears"} {
		answer, err := s.peers[i%3].do(ctx, line)
		if err != nil {
			return err
		}
		s.say("%s: %s: %s", s.configs[i%3].ID, line, answer)
	}
	id, next := requestid.New(), (leads+1)%3
	for _, at := range []int{leads, next} {
		index, err := s.peers[at].propose(ctx, id, update{Key: "figs", Value: "1"})
		if err != nil {
			return err
		}
		s.say("%s: set figs 1, request %s: entry %d", s.configs[at].ID, id, index)
	}
	if err := s.show(ctx, next); err != nil {
		return err
	}

	if err := s.peers[leads].Close(); err != nil {
		return err
	}
	s.say("%s has ended", s.configs[leads].ID)
	if err := s.show(ctx, next); err != nil {
		return err
	}
	back, err := open(s.configs[leads])
	if err != nil {
		return err
	}
	s.peers[leads] = back
	s.say("%s is back, from its disk", s.configs[leads].ID)
	return s.show(ctx, leads)
}

func (s *story) show(ctx context.Context, at int) error {
	all, err := s.peers[at].do(ctx, "list")
	s.say("%s has: %s", s.configs[at].ID, all)
	return err
}

// elect has all peers stand in an election, each lead once, and resign.
func (s *story) elect(ctx context.Context) error {
	for i := range s.peers {
		e, err := raftlog.NewElection(s.peers[i].Node, "harvest", raftlog.WithContext(ctx), raftlog.WithClientName(s.configs[i].ID))
		if err != nil {
			return err
		}
		over := make(chan error, 1)
		go func() { over <- e.ElectLeader() }()
		for status := range e.Status() {
			if status.Role == leaderelection.Leader {
				s.say("%s leads the harvest, token %d, and resigns", s.configs[i].ID, status.Leadership.Token())
				if err := e.Resign(); err != nil {
					return err
				}
			}
		}
		if err := <-over; err != nil {
			return err
		}
	}
	return nil
}
