package changefeed_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// polledBackend returns a backend of stores in memory that are polled.
func polledBackend(t testing.TB) *storetest.Backend {
	table := memory.NewTable()
	return &storetest.Backend{
		New: func(testing.TB) changefeed.Store {
			s, err := changefeed.Poll(struct{ changefeed.CompareAndSet }{table.Store("election")}, 2*time.Millisecond)
			require.NoError(t, err)
			return s
		},
		Lose: func(testing.TB) { table.Lose("election") },
	}
}

// TestPoll_Contract fails if a polled store does not satisfy the contract of stores.
func TestPoll_Contract(t *testing.T) { storetest.Run(t, polledBackend, storetest.FakeTime()) }

// TestPoll_Election fails if elections on a polled store do not satisfy their contract.
func TestPoll_Election(t *testing.T) { storetest.RunElection(t, polledBackend, storetest.FakeTime()) }

// TestPoll_InvalidArguments fails if Poll accepts an argument that it cannot use.
func TestPoll_InvalidArguments(t *testing.T) {
	_, err := changefeed.Poll(nil, time.Second)
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	_, err = changefeed.Poll(memory.NewTable().Store("election"), 0)
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
}
