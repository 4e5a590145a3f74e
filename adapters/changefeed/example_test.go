package changefeed_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/elector"
)

// A replica of a program works while it leads.
func ExampleNewElection() {
	store := memory.NewTable().Store("report") // a real program uses the store of a database
	defer store.Close()
	candidate, err := changefeed.NewElection(store, changefeed.WithID("worker 7"),
		changefeed.WithHeartbeat(100*time.Millisecond)) // a second by default
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Lead(context.Background(), candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		log.Print("leads, until ctx is done, with token ", l.Token())
		return nil // the work is complete
	})
	fmt.Println("has led:", err)
	// Output: has led: <nil>
}

// The leader hands over to another replica, for example before a deployment.
func ExampleTransfer() {
	ctx, cancel := context.WithCancel(context.Background())
	table := memory.NewTable() // a database, in a real program
	var running sync.WaitGroup
	join := func(id string) *changefeed.Election {
		election, err := changefeed.NewElection(table.Store("election"), changefeed.WithID(id), changefeed.WithContext(ctx),
			changefeed.WithHeartbeat(20*time.Millisecond)) // so that the example does not take long
		if err != nil {
			log.Fatal(err)
		}
		running.Go(func() { _ = election.ElectLeader() })
		return election
	}
	waitFor := func(role leaderelection.Role, election *changefeed.Election) {
		for status := range election.Status() {
			if status.Role == role {
				fmt.Printf("%s: %v\n", status.CandidateID, role)
				return
			}
		}
	}
	first := join("first")
	waitFor(leaderelection.Leader, first)
	second := join("second")
	waitFor(leaderelection.Follower, second)
	if err := changefeed.Transfer(ctx, table.Store("election"), "second"); err != nil {
		log.Fatal(err)
	}
	waitFor(leaderelection.Leader, second)
	cancel()
	running.Wait()
	// Output:
	// first: leader
	// second: follower
	// second: leader
}

// Two replicas of a program, of which the one in the preferred zone takes over when it has waited for a period.
func ExampleNewQueue() {
	priority := func(c leaderelection.CandidateInfo) int {
		if c.ID == "zone-a/1" {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	table := memory.NewTable() // a database, in a real program
	var running sync.WaitGroup
	for _, id := range []string{"zone-b/1", "zone-a/1"} {
		election, err := changefeed.NewElection(table.Store("election"), changefeed.WithID(id), changefeed.WithContext(ctx),
			changefeed.WithHeartbeat(20*time.Millisecond)) // a short interval, so that the example does not take long
		if err != nil {
			log.Fatal(err)
		}
		running.Go(func() { _ = election.ElectLeader() })
		running.Go(func() {
			_ = changefeed.NewQueue(election).Prefer(ctx, election, priority, 100*time.Millisecond)
		})
		running.Go(func() {
			for status := range election.Status() {
				if status.Role == leaderelection.Leader && id == "zone-a/1" {
					cancel()
				}
			}
		})
	}
	running.Wait()
	fmt.Println("zone-a/1 has led")
	// Output: zone-a/1 has led
}
