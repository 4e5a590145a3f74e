package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryBackend returns a backend of stores in memory.
func memoryBackend(testing.TB) *storetest.Backend {
	table := memory.NewTable()
	return &storetest.Backend{
		New:     func(testing.TB) changefeed.Store { return table.Store("election") },
		Lose:    func(testing.TB) { table.Lose("election") },
		Put:     func(_ testing.TB, name string) { table.Put(name, 1) },
		Is:      func(change any, name string) bool { return change == memory.Change{Key: name, Value: 1} },
		Restart: func(testing.TB) {}, // A restart does nothing, because there is no server that could lose data.
	}
}

// TestRun_AcceptsCorrectStore checks that a correct store passes every case.
func TestRun_AcceptsCorrectStore(t *testing.T) { storetest.Run(t, memoryBackend, storetest.FakeTime()) }

// TestRun_WorksInRealTime checks that no case depends on fake time.
func TestRun_WorksInRealTime(t *testing.T) { storetest.Run(t, memoryBackend) }

// TestRunElection_AcceptsCorrectStore checks that elections on a correct store pass every case.
func TestRunElection_AcceptsCorrectStore(t *testing.T) {
	storetest.RunElection(t, memoryBackend, storetest.FakeTime())
}
