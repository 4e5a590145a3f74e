package main

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

// runCandidate runs one replica of the program until ctx is done.
func runCandidate(ctx context.Context, servers []string, node, name string) error {
	// The program owns the connection: an election neither opens nor closes it. A connection of
	// zk.Connect works as well, except after the servers have lost their data.
	conn, _, err := zkdial.Connect(servers, 4*time.Second, zkdial.WithLogger(slog.Default()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return joinElection(ctx, conn, node, name)
}

// joinElection joins the election at node, and resigns when ctx is done.
func joinElection(ctx context.Context, conn *zk.Conn, node, name string) error {
	election, err := leaderelection.NewElection(conn, node,
		leaderelection.WithName(name),
		leaderelection.WithContext(ctx),
		leaderelection.WithCreateNode(),
		leaderelection.WithRejoin()) // waits for ZooKeeper, and joins again after session expiry
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
	// The candidacy has ended because of ctx. Resign returns whether ZooKeeper has confirmed that.
	return election.Resign()
}

// lead works as the leader until the leadership is over.
func lead(leadership *leaderelection.Leadership, name string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if leadership.Err() != nil {
				continue // the channel Done is closed as well
			}
			log.Printf("%s: working as leader, token %d", name, leadership.Token())
		case <-leadership.Done():
			log.Printf("%s: no longer the leader: %v", name, leadership.Err())
			return
		}
	}
}
