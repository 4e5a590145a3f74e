package changefeed_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs makes candidates, each program of which has a client of one table.
func programs(opts ...changefeed.Option) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		table := memory.NewTable()
		var mu sync.Mutex
		clients := map[int]*changefeedtest.Faulty{}
		client := func(i int) *changefeedtest.Faulty {
			mu.Lock()
			defer mu.Unlock()
			if clients[i] == nil {
				clients[i] = changefeedtest.New(table.Store("election"), uint64(i))
			}
			return clients[i]
		}
		t.Cleanup(func() {
			for _, c := range clients {
				if err := c.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				return changefeed.NewElection(client(i), append(slices.Clone(opts), changefeed.WithID(fmt.Sprint("program ", i)))...)
			},
			Crash: func(i int) { client(i).Cut() },
			Cut:   func(i int) func() { return client(i).Cut() },
		}
	}
}

func TestConformance(t *testing.T) {
	electiontest.Run(t, programs(), electiontest.FakeTime())
}

func TestConformanceKeepLeading(t *testing.T) {
	electiontest.Run(t, programs(changefeed.WithKeepLeading()), electiontest.FakeTime())
}
