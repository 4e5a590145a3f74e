package main

// Where ZooKeeper comes from, and what "cut off" means there.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/ensemble"
)

// servers is a ZooKeeper that the demo can use.
type servers struct {
	about string
	// seats are the addresses that each participant connects to.
	seats [3][]string
	// cutOff separates the participant on a seat from the ensemble, and how
	// says in which way. heal ends that.
	how    string
	cutOff func(seat int, l *link) error
	heal   func(seat int, l *link) error
	close  func() error
}

// userServers are those that somebody else runs: only the way to them can be
// cut.
func userServers(addrs []string) *servers {
	return &servers{
		about:  "Your ZooKeeper",
		seats:  [3][]string{addrs, addrs, addrs},
		how:    "%s's network swallows every packet from now on.",
		cutOff: func(_ int, l *link) error { l.cut(); return nil },
		heal:   func(_ int, l *link) error { l.heal(); return nil },
		close:  func() error { return nil },
	}
}

// startServers starts three servers and seats each participant at one of its
// own, so that a server can be cut off together with its client: the hard case,
// because such a server goes on answering for seconds.
func startServers(ctx context.Context, tick time.Duration) (*servers, error) {
	begin := time.Now()
	e, err := ensemble.Start(ctx, ensemble.Config{
		Servers: 3, TickTime: tick,
		SyncLimit: 30, // so that it is the session that is missed first, not the server
	})
	if err != nil {
		return nil, err
	}
	leader, err := e.Leader()
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	// Seat 0 gets the server that leads the others: it is not for cutting off,
	// the servers would have to elect another one first.
	server := func(seat int) int { return (leader + seat) % e.Servers() }
	s := &servers{
		about: fmt.Sprintf("Three ZooKeeper servers of our own (%v), started in %.1f s",
			e.Backend(), time.Since(begin).Seconds()),
		how:    "%s's server loses the other two servers, and still talks to its client.",
		cutOff: func(seat int, _ *link) error { return e.CutOff(server(seat)) },
		heal:   func(seat int, _ *link) error { return e.Heal(server(seat)) },
		close:  e.Close,
	}
	for seat := range s.seats {
		s.seats[seat] = []string{e.Addr(server(seat))}
	}
	return s, nil
}
