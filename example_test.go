package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// This is the loop of a program that runs in several replicas, of which at most one may act at a time.
func Example() {
	conn, _, err := zkdial.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Create("/state", nil, 0, zk.WorldACL(zk.PermAll)) // the leader writes this znode
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		log.Fatal(err)
	}

	candidate, err := leaderelection.NewElection(conn, "/election", leaderelection.WithName("host-1"),
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		log.Fatal(err)
	}
	go candidate.ElectLeader()
	defer candidate.Resign()

	// A candidate that is not elected within this time gives up.
	patience := time.After(100 * time.Second)
	for {
		select {
		case status, ok := <-candidate.Status():
			if !ok {
				return // the candidate has resigned
			}
			if status.Err != nil {
				log.Printf("the candidacy is over: %v", status.Err)
				return
			}
			log.Printf("now %v", status)
			if status.Role == leaderelection.Leader {
				patience = nil // a leader receives no further status while all is well, so wait without a limit
				go doLeaderStuff(status.Leadership)
			}
		case <-patience:
			log.Print("not elected within 100 s")
			return
		}
	}
}

// doLeaderStuff acts until the leadership is lost or its lease has expired.
func doLeaderStuff(leadership *leaderelection.Leadership) {
	work := time.NewTicker(time.Second)
	defer work.Stop()
	for {
		select {
		case <-work.C:
			// Write to ZooKeeper by a transaction that commits only during this leadership. Let other systems
			// compare leadership.Token().
			state := fmt.Appendf(nil, "written by leader %d", leadership.Token())
			if _, err := leadership.Multi(&zk.SetDataRequest{Path: "/state", Data: state, Version: -1}); err != nil {
				log.Print(err)
			}
		case <-leadership.Done():
			log.Printf("not the leader any more: %v", leadership.Err())
			return
		}
	}
}

// A candidate prepares for its leadership when it is the next one.
func ExampleStatus_next() {
	conn, _, err := zkdial.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	candidate, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		log.Fatal(err)
	}
	go candidate.ElectLeader()
	defer candidate.Resign()

	for status := range candidate.Status() {
		switch {
		case status.Err != nil:
			log.Printf("the candidacy is over: %v", status.Err)
		case status.Role == leaderelection.Leader:
			go doLeaderStuff(status.Leadership)
		case status.Next:
			log.Printf("warming the cache: only %s is ahead", status.NowFollowing)
		}
	}
}

// Observe an election without joining it, and warn if there is no leader for too long.
func ExampleObserve() {
	conn, _, err := zkdial.Connect([]string{"127.0.0.1:2181"}, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	observations, err := leaderelection.Observe(ctx, conn, "/jobs/report")
	if err != nil {
		log.Fatal(err)
	}
	const limit = 30 * time.Second  // how long there may be no leader
	warning := time.NewTimer(limit) // also while the connection is down
	for {
		select {
		case o, open := <-observations:
			switch {
			case !open:
				return
			case o.Err != nil:
				log.Fatal(o.Err)
			case o.Leader == nil:
				log.Print("no leader")
				warning.Reset(limit)
			default:
				log.Printf("%s leads with token %d at %s", o.Leader.Name, o.Leader.Token, o.Leader.Value)
				warning.Stop()
			}
		case <-warning.C:
			log.Print("WARNING: no leader for ", limit)
		}
	}
}

// End an election for all candidates.
func ExampleDeleteElection() {
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	if err := leaderelection.DeleteElection(conn, "/election"); err != nil {
		log.Fatal(err)
	}
}
