package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// participant represents one process of an application. It uses a separate session and is a
// candidate in it. Only the goroutine that runs the steps uses the fields.
type participant struct {
	name           string
	index          int // in servers.addrs
	addrs          []string
	sessionTimeout time.Duration
	monitor        *monitor

	session  *session
	election *leaderelection.Election
}

// start connects to ZooKeeper.
func (p *participant) start(ctx context.Context) error {
	s, err := openSession(ctx, p.addrs, p.sessionTimeout)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.session = s
	return nil
}

// joinElection joins the election at node. It uses the library as a program does: it calls ElectLeader on
// a goroutine, and reads Status until the channel is closed.
func (p *participant) joinElection(node string) error {
	election, err := leaderelection.NewElection(p.session.conn, node,
		leaderelection.WithClientName(p.name),
		leaderelection.WithSessionTimeout(p.sessionTimeout),
		leaderelection.WithRejoin())
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.election = election
	p.monitor.addCandidacy(p.name, election)
	go election.ElectLeader()
	p.session.readers.Go(func() {
		for status := range election.Status() {
			p.monitor.addStatus(p.name, election, status)
		}
		p.monitor.endCandidacy(p.name, election)
	})
	return nil
}

// crash acts as if the process were killed: its connections are closed, but not its session.
func (p *participant) crash() {
	p.monitor.markCrashed(p.name)
	p.session.link.close()
}

// session is a connection to ZooKeeper over a link that can be interrupted.
type session struct {
	conn    *zk.Conn
	link    *link
	events  <-chan zk.Event
	readers sync.WaitGroup // goroutines that read from channels of the library
}

// openSession connects to ZooKeeper and waits for the session.
func openSession(ctx context.Context, addrs []string, timeout time.Duration) (*session, error) {
	s := &session{link: newLink()}
	var err error
	s.conn, s.events, err = zkdial.Connect(addrs, timeout, zkdial.WithDialer(s.link.dial),
		zkdial.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	for {
		select {
		case event := <-s.events:
			if event.State == zk.StateHasSession {
				return s, nil
			}
		case <-ctx.Done():
			s.close()
			return nil, fmt.Errorf("no ZooKeeper session at %v: %w", addrs, ctx.Err())
		}
	}
}

// close closes the session, and waits for its goroutines.
func (s *session) close() {
	if s.conn.State() != zk.StateHasSession {
		s.link.close() // no server would answer the request to close the session
	}
	s.conn.Close()
	s.link.close()
	for range s.events { // until it is closed
	}
	s.readers.Wait()
}
