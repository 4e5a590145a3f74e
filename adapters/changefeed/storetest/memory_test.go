package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inMemory(testing.TB) *storetest.Backend {
	table := memory.NewTable()
	return &storetest.Backend{
		New:  func(testing.TB) changefeed.Store { return table.Store("election") },
		Lose: func(testing.TB) { table.Lose("election") },
		Put:  func(_ testing.TB, name string) { table.Put(name, 1) },
		Is:   func(change any, name string) bool { return change == memory.Change{Key: name, Value: 1} },
		Restart: func(testing.TB) { // nothing is lost by a server that is none
		},
	}
}

func TestMemory(t *testing.T) { storetest.Run(t, inMemory, storetest.FakeTime()) }

func TestMemoryInRealTime(t *testing.T) { storetest.Run(t, inMemory) }

func TestElectionsInMemory(t *testing.T) { storetest.RunElection(t, inMemory, storetest.FakeTime()) }
