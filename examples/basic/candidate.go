package main

// The candidate: what a program that runs in several copies does.

import (
	"context"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// candidate is one copy of the program, until ctx ends.
func candidate(ctx context.Context, servers []string, node, name string) error {
	// The connection is yours: an election neither opens nor closes any. One of zk.Connect
	// works, too, except after the servers have lost their data.
	conn, _, err := zkdial.Connect(servers, 4*time.Second, zkdial.WithLogger(slog.Default()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return takePart(ctx, conn, node, name)
}

// takePart stands in the election at node, and resigns when ctx ends.
func takePart(ctx context.Context, conn *zk.Conn, node, name string) error {
	election, err := leaderelection.NewElection(conn, node,
		leaderelection.WithClientName(name),
		leaderelection.WithContext(ctx),
		leaderelection.WithCreateNode(),
		leaderelection.WithRejoin()) // it waits for ZooKeeper, and survives its session
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()

	go election.ElectLeader()
	for status := range election.Status() {
		if status.Err != nil {
			return status.Err // the candidacy is over
		}
		log.Printf("%s: %v", name, status.Role)
		if status.Role == leaderelection.Leader {
			work.Go(func() { lead(status.Leadership, name) })
		}
	}
	// The context has ended the candidacy already. This says whether ZooKeeper
	// has confirmed it.
	return election.Resign()
}

// lead does what only one may do at a time, until the leadership is over.
func lead(leadership *leaderelection.Leadership, name string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if leadership.Err() != nil {
				continue // both have happened
			}
			log.Printf("%s: working as leader, token %d", name, leadership.Token())
		case <-leadership.Done():
			log.Printf("%s: not leader any more: %v", name, leadership.Err())
			return
		}
	}
}
