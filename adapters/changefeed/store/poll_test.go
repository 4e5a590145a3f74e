package store_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// pollInterval is the interval of polled stores in tests.
const pollInterval = 2 * time.Millisecond

// polledBackend returns a backend of stores in memory that are polled.
func polledBackend(t testing.TB) *storetest.Backend {
	table := memory.NewTable()
	return &storetest.Backend{
		New: func(testing.TB) changefeed.Store {
			s, err := store.Poll(struct{ store.CompareAndSet }{table.Store("election")}, pollInterval)
			require.NoError(t, err)
			return s
		},
		Lose: func(testing.TB) { table.Lose("election") },
	}
}

// TestPoll_StoreSatisfiesContract checks that a polled store satisfies the contract of stores.
func TestPoll_StoreSatisfiesContract(t *testing.T) {
	storetest.Run(t, polledBackend, storetest.FakeTime())
}

// TestPoll_ElectionsSatisfyContract checks that elections on a polled store satisfy their contract.
func TestPoll_ElectionsSatisfyContract(t *testing.T) {
	storetest.RunElection(t, polledBackend, storetest.FakeTime())
}

// TestPoll_ThirdFailedReadEndsFeed checks that a feed of a polled store ends when a third read in a row has failed, with
// the error of that read and within a limited time, and not after the first failure.
func TestPoll_ThirdFailedReadEndsFeed(t *testing.T) {
	errRead := errors.New("the connection was reset")
	for name, c := range map[string]struct {
		fail     func(read int) bool
		block    bool // block makes reads block instead of returning an error.
		want     error
		interval time.Duration // interval is pollInterval if it is 0.
		limit    time.Duration
	}{
		"EachSecond":     {fail: func(read int) bool { return read%2 == 0 }},
		"TwoOfThree":     {fail: func(read int) bool { return read%3 != 0 }},
		"All":            {fail: func(int) bool { return true }, want: errRead, limit: 3 * pollInterval},
		"Blocked":        {fail: func(int) bool { return true }, block: true, want: context.DeadlineExceeded, limit: 3 * (pollInterval + time.Second)},
		"TwoOfThreeLong": {fail: func(read int) bool { return read%3 != 0 }, interval: 11 * time.Second},
		"AllLong":        {fail: func(int) bool { return true }, want: errRead, interval: 11 * time.Second, limit: 22 * time.Second},
		"BlockedLong":    {fail: func(int) bool { return true }, block: true, want: context.DeadlineExceeded, interval: 11 * time.Second, limit: 55 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := memory.NewTable()
				interval := cmp.Or(c.interval, pollInterval)
				reads := 0
				s, err := store.Poll(&failingReads{Store: table.Store("election"), read: func(ctx context.Context) (changefeed.Record, error) {
					if reads++; !c.fail(reads) {
						return table.Store("election").Read(ctx)
					}
					if c.block {
						<-ctx.Done()
						return changefeed.Record{}, ctx.Err()
					}
					return changefeed.Record{}, errRead
				}}, interval)
				require.NoError(t, err)
				defer s.Close()
				require.NoError(t, s.Create(t.Context(), changefeed.Record{Epoch: "e", Seq: 1, TTL: time.Second}))
				f, err := s.Subscribe(t.Context())
				require.NoError(t, err)
				defer f.Close()
				begin := time.Now()
				if c.want != nil {
					_, err = f.Next(t.Context())
					require.ErrorIs(t, err, c.want)
					require.LessOrEqual(t, time.Since(begin), c.limit)
					require.Equal(t, 3, reads)
					return
				}
				_, err = f.Next(t.Context())
				require.NoError(t, err)
				limited, cancel := context.WithTimeout(t.Context(), 100*interval)
				defer cancel()
				_, err = f.Next(limited) // Next waits until limited is done, unless the feed fails.
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Error(t, limited.Err())
			})
		})
	}
}

// failingReads is a store whose method Read calls the function read.
type failingReads struct {
	changefeed.Store
	read func(ctx context.Context) (changefeed.Record, error)
}

func (s *failingReads) Read(ctx context.Context) (changefeed.Record, error) { return s.read(ctx) }

// TestPoll_RejectsInvalidArguments checks that Poll returns ErrInvalid for a nil store and for an
// interval that is not positive.
func TestPoll_RejectsInvalidArguments(t *testing.T) {
	_, err := store.Poll(nil, time.Second)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = store.Poll(memory.NewTable().Store("election"), 0)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}
