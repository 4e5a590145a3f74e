package demo

// Where ZooKeeper comes from, and what "cut off" means there.

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// servers is a ZooKeeper that the demo can use.
type servers struct {
	about string
	// seats are the addresses that each participant connects to.
	seats [3][]string
	// cutOff separates the participant on a seat from the ensemble, and how
	// says in which way. heal ends that.
	how    string
	cutOff func(seat int, l *link)
	heal   func(seat int, l *link)
	close  func()
}

// userServers are those that somebody else runs: only the way to them can be
// cut.
func userServers(addrs []string) *servers {
	return &servers{
		about:  "Your ZooKeeper",
		seats:  [3][]string{addrs, addrs, addrs},
		how:    "%s's network swallows every packet from now on.",
		cutOff: func(_ int, l *link) { l.cut() },
		heal:   func(_ int, l *link) { l.heal() },
		close:  func() {},
	}
}

// embeddedServers starts three servers inside this process and seats each
// participant at one of its own, so that a server can be cut off together with
// its client: the hard case, because such a server goes on answering.
func embeddedServers() (*servers, error) {
	e, err := zktest.NewEnsemble(3)
	if err != nil {
		return nil, err
	}
	// Seat 0 gets the server that leads the others: it is not for cutting off,
	// the servers would elect another one and disconnect everybody.
	first := e.Leader().ID()
	server := func(seat int) *zktest.Server { return e.Server((first + seat) % e.Len()) }
	s := &servers{
		about:  "Three embedded servers (package zktest), over TCP on loopback",
		how:    "%s's server loses the other two servers, and still talks to its client.",
		cutOff: func(seat int, _ *link) { server(seat).Partition() },
		heal:   func(seat int, _ *link) { server(seat).Heal() },
		close:  e.Close,
	}
	for seat := range s.seats {
		addr, err := server(seat).Listen()
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("start a server: %w", err)
		}
		s.seats[seat] = []string{addr}
	}
	return s, nil
}
