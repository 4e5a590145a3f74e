package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// participant represents one process of an application. It uses a separate session and is a
// candidate in it.
type participant struct {
	name    string
	index   int // the number of the participant, and of its embedded server
	addrs   []string
	monitor *monitor
	session *session // nil if the process does not run

	// monitor.mu guards the following fields. Only the goroutine that runs the steps changes election.
	election   *leaderelection.Election   // the current candidacy
	status     leaderelection.Status      // the last status that was received
	since      time.Time                  // when the status was received; zero before the first one
	absence    string                     // why the participant is not a candidate; "" if it is one
	leadership *leaderelection.Leadership // the last leadership of the candidacy
}

// joinElection joins the election at node. It uses the library as a program does: it calls ElectLeader on
// a goroutine, and reads Status until the channel is closed.
func (p *participant) joinElection(node string, sessionTimeout time.Duration) error {
	election, err := leaderelection.NewElection(p.session.conn, node,
		leaderelection.WithName(p.name),
		leaderelection.WithSessionTimeout(sessionTimeout),
		leaderelection.WithRejoin())
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.monitor.addCandidacy(p, election)
	go election.ElectLeader()
	p.session.readers.Go(func() {
		for status := range election.Status() {
			p.monitor.addStatus(p, election, status)
		}
		p.monitor.endCandidacy(p, election)
	})
	return nil
}

func (p *participant) isLeader() bool {
	return p.absence == "" && p.status.Role == leaderelection.Leader
}

// style returns the style of lines about the participant.
func (p *participant) style() style {
	switch {
	case p.absence != "":
		return dim
	case p.status.Role == leaderelection.Leader:
		return green
	case p.status.Role == leaderelection.Suspended:
		return yellow
	}
	return plain
}

// describe describes the state of a participant. The caller must hold monitor.mu.
func (p *participant) describe() string {
	s := p.status
	switch {
	case p.absence != "":
		return p.absence
	case p.since.IsZero():
		return "joins"
	case errors.Is(s.Err, leaderelection.ErrElectionOver):
		return "candidacy ends: the election is over (ErrElectionOver)"
	case s.Err != nil:
		return fmt.Sprintf("candidacy ends: %v", s.Err)
	case s.Role == leaderelection.Leader:
		return fmt.Sprintf("leads, token %d", s.Leadership.Token())
	case s.Role == leaderelection.Suspended:
		return "suspended: its lease has expired, so it must not act"
	case s.NowFollowing == "":
		return "not in the queue: its session has expired"
	}
	for _, other := range p.monitor.participants {
		if other.election != nil && other.election.ID() == s.NowFollowing {
			return "follows " + other.name
		}
	}
	return "follows " + s.NowFollowing
}

// session is a connection to ZooKeeper over a link that can be interrupted.
type session struct {
	conn    *zk.Conn
	link    link
	events  <-chan zk.Event
	readers sync.WaitGroup // goroutines that read from channels of the library
}

// openSession connects to ZooKeeper and waits for the session.
func openSession(ctx context.Context, addrs []string, timeout time.Duration) (*session, error) {
	s := &session{}
	var err error
	s.conn, s.events, err = zkdial.Connect(addrs, timeout, zkdial.WithDialer(s.link.dial),
		zkdial.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
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

// close closes the session, and waits for the goroutines that read its channels.
func (s *session) close() {
	if s.conn.State() != zk.StateHasSession {
		s.link.close() // otherwise the request to close the session would wait for an answer that never arrives
	}
	s.conn.Close()
	s.link.close()
	for range s.events { // receives until the channel is closed
	}
	s.readers.Wait()
}
