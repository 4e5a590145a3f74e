package main

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// servers are the ZooKeeper servers that the demo uses.
type servers struct {
	description string
	// addrs are the servers of each participant.
	addrs [3][]string
	// partition separates a participant from the ensemble, and heal ends the partition.
	partition, heal func(participant int, l *link)
	// partitionText describes the partition. It is a format string for the name of the participant.
	partitionText string
	close         func()
}

// userServers returns the servers of the user, of which only the network can be interrupted.
func userServers(addrs []string) *servers {
	return &servers{
		description:   "Your ZooKeeper",
		addrs:         [3][]string{addrs, addrs, addrs},
		partition:     func(_ int, l *link) { l.partition() },
		heal:          func(_ int, l *link) { l.heal() },
		partitionText: "%s's network drops every packet from now on.",
		close:         func() {},
	}
}

// startEmbedded starts three servers in this process, one for each participant. The demo partitions a server
// together with its client. This is the difficult case, because the server still answers its client.
func startEmbedded() (*servers, error) {
	embedded, err := zktest.NewEnsemble(3)
	if err != nil {
		return nil, err
	}
	// The first participant gets the leader of the ensemble, which is not partitioned: the servers would
	// elect another leader and close all connections.
	first := embedded.Leader().ID()
	server := func(participant int) *zktest.Server { return embedded.Server((first + participant) % embedded.Len()) }
	s := &servers{
		description:   "Three embedded servers (package zktest), over TCP on loopback",
		partition:     func(participant int, _ *link) { server(participant).Partition() },
		heal:          func(participant int, _ *link) { server(participant).Heal() },
		partitionText: "%s's server loses the other two servers, and still talks to its client.",
		close:         embedded.Close,
	}
	for participant := range s.addrs {
		addr, err := server(participant).Listen()
		if err != nil {
			embedded.Close()
			return nil, fmt.Errorf("start a server: %w", err)
		}
		s.addrs[participant] = []string{addr}
	}
	return s, nil
}
