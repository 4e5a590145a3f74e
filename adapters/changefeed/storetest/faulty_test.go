package storetest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestFaulty_SatisfiesContract checks that a store without faults, and with faults that the contract permits,
// satisfies the contract.
func TestFaulty_SatisfiesContract(t *testing.T) {
	for name, faults := range map[string]storetest.Faults{"NoFaults": {}, "RepeatedEvents": {FeedRepeat: 0.5, Delay: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(testing.TB) *storetest.Backend {
				table := memory.NewTable()
				return &storetest.Backend{
					New: func(testing.TB) changefeed.Store {
						f := storetest.NewFaulty(table.Store("election"), 1)
						f.Set(faults)
						return f
					},
					Lose: func(testing.TB) { table.Lose("election") },
				}
			}, storetest.FakeTime())
		})
	}
}

// newFaulty returns a faulty store with a record, and a store of the same record without faults.
func newFaulty(t *testing.T) (f *storetest.Faulty, direct changefeed.Store, r changefeed.Record) {
	table := memory.NewTable()
	direct = table.Store("election")
	require.NoError(t, direct.Create(t.Context(), changefeed.Record{Epoch: "0.a", Seq: 1}))
	r, err := direct.Read(t.Context())
	require.NoError(t, err)
	return storetest.NewFaulty(table.Store("election"), 1), direct, r
}

// heartbeat sends a heartbeat that replaces r, and returns its error. It waits for the response for at
// most limit.
func heartbeat(t *testing.T, f changefeed.Store, r changefeed.Record, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	next := r
	next.Seq++
	_, err := f.Heartbeat(ctx, r, next)
	return err
}

func readSeq(t *testing.T, s changefeed.Store) uint64 {
	r, err := s.Read(t.Context())
	require.NoError(t, err)
	return r.Seq
}

// TestFaulty_FaultsHaveDocumentedEffects checks that each kind of fault has the documented effect on a
// request.
func TestFaulty_FaultsHaveDocumentedEffects(t *testing.T) {
	for name, c := range map[string]struct {
		faults storetest.Faults
		err    error
		// returned is the Seq of the record when the call returns; later is the Seq when all requests have
		// reached the store.
		returned, later uint64
	}{
		"Before": {storetest.Faults{Before: 1}, storetest.ErrInjected, 1, 1},
		"After":  {storetest.Faults{After: 1}, storetest.ErrInjected, 2, 2},
		"Late":   {storetest.Faults{Delay: time.Hour, Late: 1}, context.DeadlineExceeded, 1, 2},
		"Slow":   {storetest.Faults{Delay: time.Hour}, context.DeadlineExceeded, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, direct, r := newFaulty(t)
				defer f.Close()
				f.Set(c.faults)
				require.ErrorIs(t, heartbeat(t, f, r, time.Second), c.err)
				require.Equal(t, c.returned, readSeq(t, direct))
				time.Sleep(3 * time.Hour)
				require.Equal(t, c.later, readSeq(t, direct))
			})
		})
	}
}

// TestFaulty_CutNetworkStopsRequests checks that no requests or events pass a network that is cut, and that
// no events are lost after it was healed.
func TestFaulty_CutNetworkStopsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, direct, r := newFaulty(t)
		defer f.Close()
		feed, err := f.Subscribe(t.Context())
		require.NoError(t, err)
		defer feed.Close()
		_, err = feed.Next(t.Context())
		require.NoError(t, err)

		heal := f.Cut()
		require.ErrorIs(t, heartbeat(t, f, r, time.Second), context.DeadlineExceeded)
		require.EqualValues(t, 1, readSeq(t, direct))
		require.NoError(t, heartbeat(t, direct, r, time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = feed.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		heal()
		event, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, event.Record.Seq)
		require.EqualValues(t, 2, readSeq(t, f))
	})
}

// TestFaulty_FeedsHaveDocumentedFaults checks that each kind of fault has the documented effect on a
// feed.
func TestFaulty_FeedsHaveDocumentedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		faults storetest.Faults
		seqs   []uint64
		err    error
	}{
		"Cut":     {storetest.Faults{FeedCut: 1}, nil, storetest.ErrInjected},
		"Silence": {storetest.Faults{FeedSilence: 1}, nil, context.DeadlineExceeded},
		"Repeat":  {storetest.Faults{FeedRepeat: 1}, []uint64{1, 1, 2, 2, 3, 3}, context.DeadlineExceeded},
		"Reorder": {storetest.Faults{FeedReorder: 1}, []uint64{2, 1}, context.DeadlineExceeded},
		"Lag":     {storetest.Faults{Lag: time.Minute}, []uint64{1, 3}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, direct, r := newFaulty(t)
				defer f.Close()
				f.Set(c.faults)
				feed, err := f.Subscribe(t.Context())
				require.NoError(t, err)
				defer feed.Close()
				var seqs []uint64
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var writer sync.WaitGroup
				defer writer.Wait()
				writer.Go(func() {
					for range 2 {
						time.Sleep(time.Millisecond)
						next := r
						next.Seq++
						r, _ = direct.Heartbeat(t.Context(), r, next)
					}
				})
				for {
					event, err := feed.Next(ctx)
					if err != nil {
						require.ErrorIs(t, err, c.err)
						break
					}
					seqs = append(seqs, event.Record.Seq)
				}
				require.Equal(t, c.seqs, seqs)
			})
		})
	}
}
