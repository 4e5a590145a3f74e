package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/elector"
)

// lock is a Lease of client-go in memory.
type lock struct {
	resourcelock.Interface
	released func() // called when the holder releases the Lease

	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord
	written time.Time
	delay   time.Duration // the time from a renewal to its answer
	lost    error         // the answer to renewals, if it is not nil
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := json.Marshal(l.record)
	record := l.record
	return &record, text, err
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.released()
		return nil
	}
	l.mu.Lock()
	delay, err := l.delay, l.lost
	if err == nil {
		l.record, l.written = record, time.Now()
	}
	l.mu.Unlock()
	if err == nil {
		time.Sleep(delay)
	}
	return err
}

// set sets the time until renewals are answered, and the error with which they are answered.
func (l *lock) set(delay time.Duration, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.lost = delay, lost
}

var errLost = errors.New("no answer")

func (*lock) RecordEvent(string) {}
func (*lock) Identity() string   { return "this" }
func (*lock) Describe() string   { return "lock" }

// run calls lead in fake time until test returns. The channel works receives true when the work begins, and
// false when the work ends, 9 s after its context is done.
func run(t *testing.T, old *lock, newErr error, test func(stop func(), works <-chan bool)) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		works, ended := make(chan bool), make(chan struct{})
		go func() {
			defer close(ended)
			err = lead(ctx, old, func() (leaderelection.Candidate, error) {
				e, err := changefeed.NewElection(memory.NewTable().Store("report"))
				return e, errors.Join(err, newErr)
			}, func(ctx context.Context, _ *leaderelection.Leadership) error {
				works <- true
				<-ctx.Done()
				time.Sleep(9 * time.Second)
				works <- false
				return nil
			})
		}()
		test(stop, works)
		<-ended
	})
	return err
}

// TestLead_ReturnsWhenStopped checks that lead returns when its context is done, both while it leads and while
// another replica holds the Lease.
func TestLead_ReturnsWhenStopped(t *testing.T) {
	require.NoError(t, run(t, &lock{}, nil, func(stop func(), works <-chan bool) {
		require.True(t, <-works)
		stop()
		require.False(t, <-works)
	}))
	other := resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaseDurationSeconds: 1000}
	require.NoError(t, run(t, &lock{record: other}, nil, func(stop func(), works <-chan bool) {
		time.Sleep(time.Minute)
		stop()
	}))
}

// TestLead_EndsWorkBeforeLostLeaseExpires checks that the work has ended before the lost Lease expires, and
// that lead does not release the Lease. The last renewal succeeds, but its answer takes almost RenewDeadline.
func TestLead_EndsWorkBeforeLostLeaseExpires(t *testing.T) {
	old := &lock{released: func() { t.Error("released") }}
	require.ErrorContains(t, run(t, old, nil, func(_ func(), works <-chan bool) {
		require.True(t, <-works)
		old.set(7900*time.Millisecond, nil)
		time.Sleep(5 * time.Second) // A renewal has been stored, and its answer has not arrived yet.
		old.set(0, errLost)
		require.False(t, <-works)
		took := time.Since(old.written)
		require.Greater(t, took, 26*time.Second)
		require.Less(t, took, time.Duration(old.record.LeaseDurationSeconds)*time.Second)
	}), "the old Lease was lost")
}

// TestLead_ReturnsErrorOfNewCandidate checks that lead returns the error if the candidate of the new election
// cannot be created.
func TestLead_ReturnsErrorOfNewCandidate(t *testing.T) {
	want := errors.New("unsuitable")
	require.ErrorIs(t, run(t, &lock{}, want, func(func(), <-chan bool) {}), want)
}

// TestLead_GivesUpIfNotElectedInTime checks that lead returns errNotElected, and so does not renew the Lease
// any more, if it has not led the new election for a minute.
func TestLead_GivesUpIfNotElectedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := memory.NewTable()
		other, err := changefeed.NewElection(table.Store("report"))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- elector.Lead(ctx, other, func(ctx context.Context, _ *leaderelection.Leadership) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		begin := time.Now()
		require.ErrorIs(t, lead(t.Context(), &lock{}, func() (leaderelection.Candidate, error) {
			return changefeed.NewElection(table.Store("report"))
		}, report), errNotElected)
		require.WithinDuration(t, begin.Add(patience), time.Now(), 15*time.Second)
		stop()
		require.NoError(t, <-ended)
	})
}

// TestClientGo_ReleasesLeaseBeforeCancellingWork shows that client-go, after a failed renewal, releases the
// Lease before it cancels the context of the work. docs/migration.md describes the consequence: another process
// can begin while the work still runs.
func TestClientGo_ReleasesLeaseBeforeCancellingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, releases := &lock{}, 0
		var work context.Context
		old.released = func() {
			releases++
			require.NoError(t, work.Err())
		}
		clientgo.RunOrDie(t.Context(), clientgo.LeaderElectionConfig{
			Lock: old, LeaseDuration: 30 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: clientgo.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					work = ctx
					old.set(0, errLost)
				},
				OnStoppedLeading: func() {},
			},
		})
		require.Equal(t, 1, releases)
		require.Error(t, work.Err())
	})
}
