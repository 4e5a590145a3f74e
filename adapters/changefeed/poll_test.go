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

// polled is the store in memory, without its feed.
func polled(t testing.TB) *storetest.Backend {
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

func TestPollIsAStore(t *testing.T)           { storetest.Run(t, polled, storetest.FakeTime()) }
func TestElectionsOnPolledStore(t *testing.T) { storetest.RunElection(t, polled, storetest.FakeTime()) }

func TestPollRefuses(t *testing.T) {
	_, err := changefeed.Poll(nil, time.Second)
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	_, err = changefeed.Poll(memory.NewTable().Store("election"), 0)
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
}
