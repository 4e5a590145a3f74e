package changefeedtest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCalm: in calm weather a faulty store keeps the contract, and also when events are
// repeated.
func TestCalm(t *testing.T) {
	for name, w := range map[string]changefeedtest.Faults{"Calm": {}, "Repeated": {FeedRepeat: 0.5, Delay: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(testing.TB) *storetest.Backend {
				table := memory.NewTable()
				return &storetest.Backend{
					New: func(testing.TB) changefeed.Store {
						f := changefeedtest.New(table.Store("election"), 1)
						f.Set(w)
						return f
					},
					Lose: func(testing.TB) { table.Lose("election") },
				}
			}, storetest.FakeTime())
		})
	}
}

// faulty is one with a record, and a client of the same without faults.
func faulty(t *testing.T) (f *changefeedtest.Faulty, direct changefeed.Store, r changefeed.Record) {
	table := memory.NewTable()
	direct = table.Store("election")
	require.NoError(t, direct.Create(t.Context(), changefeed.Record{Epoch: "0.a", Seq: 1}))
	r, err := direct.Read(t.Context())
	require.NoError(t, err)
	return changefeedtest.New(table.Store("election"), 1), direct, r
}

// beat is a write that takes no longer than limit.
func beat(t *testing.T, f changefeed.Store, r changefeed.Record, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	next := r
	next.Seq++
	_, err := f.Heartbeat(ctx, r, next)
	return err
}

func seq(t *testing.T, s changefeed.Store) uint64 {
	r, err := s.Read(t.Context())
	require.NoError(t, err)
	return r.Seq
}

func TestRequests(t *testing.T) {
	for name, c := range map[string]struct {
		weather  changefeedtest.Faults
		err      error
		now, end uint64 // Seq when the call has returned, and later
	}{
		"Before": {changefeedtest.Faults{Before: 1}, changefeedtest.ErrInjected, 1, 1},
		"After":  {changefeedtest.Faults{After: 1}, changefeedtest.ErrInjected, 2, 2},
		"Late":   {changefeedtest.Faults{Delay: time.Hour, Late: 1}, context.DeadlineExceeded, 1, 2},
		"Slow":   {changefeedtest.Faults{Delay: time.Hour}, context.DeadlineExceeded, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, direct, r := faulty(t)
				defer f.Close()
				f.Set(c.weather)
				require.ErrorIs(t, beat(t, f, r, time.Second), c.err)
				require.Equal(t, c.now, seq(t, direct))
				time.Sleep(3 * time.Hour)
				require.Equal(t, c.end, seq(t, direct))
			})
		})
	}
}

func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, direct, r := faulty(t)
		defer f.Close()
		feed, err := f.Subscribe(t.Context())
		require.NoError(t, err)
		defer feed.Close()
		_, err = feed.Next(t.Context())
		require.NoError(t, err)

		heal := f.Cut()
		require.ErrorIs(t, beat(t, f, r, time.Second), context.DeadlineExceeded)
		require.EqualValues(t, 1, seq(t, direct))
		require.NoError(t, beat(t, direct, r, time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = feed.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		heal()
		event, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, event.Record.Seq)
		require.EqualValues(t, 2, seq(t, f))
	})
}

func TestFeeds(t *testing.T) {
	for name, c := range map[string]struct {
		weather changefeedtest.Faults
		seqs    []uint64
		err     error
	}{
		"Cut":     {changefeedtest.Faults{FeedCut: 1}, nil, changefeedtest.ErrInjected},
		"Silence": {changefeedtest.Faults{FeedSilence: 1}, nil, context.DeadlineExceeded},
		"Repeat":  {changefeedtest.Faults{FeedRepeat: 1}, []uint64{1, 1, 2, 2, 3, 3}, context.DeadlineExceeded},
		"Reorder": {changefeedtest.Faults{FeedReorder: 1}, []uint64{2, 1}, context.DeadlineExceeded},
		"Lag":     {changefeedtest.Faults{Lag: time.Minute}, []uint64{1, 3}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, direct, r := faulty(t)
				defer f.Close()
				f.Set(c.weather)
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
