package demo

// A participant: what stands for one process of an application that wants
// exactly one of its copies to lead.

import (
	"context"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// participant has a session of its own, and a candidacy in it. Its fields are
// for the goroutine that tells the story.
type participant struct {
	name    string
	seat    int
	addrs   []string
	timeout time.Duration // of the session
	board   *board

	session  *session
	election *leaderelection.Election
}

// start connects to ZooKeeper, as a process does first.
func (p *participant) start(ctx context.Context) error {
	s, err := connect(ctx, p.addrs, p.timeout)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.session = s
	return nil
}

// stand takes part in the election at node. This is the library's loop: go
// ElectLeader, and read Status until it is closed.
func (p *participant) stand(node string) error {
	election, err := leaderelection.NewElection(p.session.conn, node,
		leaderelection.WithClientName(p.name),
		leaderelection.WithSessionTimeout(p.timeout),
		leaderelection.WithRejoin())
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.election = election
	p.board.stands(p.name, election)
	go election.ElectLeader()
	p.session.readers.Go(func() {
		for status := range election.Status() {
			p.board.told(p.name, election, status)
		}
		p.board.left(p.name, election)
	})
	return nil
}

// crash does what the end of a process does to its session: nobody closes it,
// and nobody is there any more.
func (p *participant) crash() {
	p.board.crashed(p.name)
	p.session.link.drop()
}

// session is a connection to ZooKeeper over a link that can be broken.
type session struct {
	conn    *zk.Conn
	link    *link
	events  <-chan zk.Event
	readers sync.WaitGroup
}

// connect returns when the session is there.
func connect(ctx context.Context, addrs []string, timeout time.Duration) (*session, error) {
	s := &session{link: newLink()}
	var err error
	s.conn, s.events, err = zk.Connect(addrs, timeout, zk.WithDialer(s.link.dial),
		zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectBound)
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

// close ends the session and waits until nothing of it is left.
func (s *session) close() {
	if s.conn.State() != zk.StateHasSession {
		s.link.drop() // there is nobody to say goodbye to
	}
	s.conn.Close()
	s.link.drop()
	for range s.events {
	}
	s.readers.Wait()
}
