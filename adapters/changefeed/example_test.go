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
)

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
			changefeed.WithHeartbeat(20*time.Millisecond)) // so that the example does not take long
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
