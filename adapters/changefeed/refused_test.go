package changefeed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// refusing is a store that refuses requests while it is told to, for lack of a permission.
type refusing struct {
	changefeed.Store
	refuses  atomic.Bool // reads and writes
	closed   atomic.Bool // the connection
	requests atomic.Int64
}

func (s *refusing) refused() error {
	s.requests.Add(1)
	switch {
	case s.closed.Load():
		return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case s.refuses.Load():
		return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, leaderelection.ErrPermission)
	}
	return nil
}

func (s *refusing) Read(ctx context.Context) (changefeed.Record, error) {
	if err := s.refused(); err != nil {
		return changefeed.Record{}, err
	}
	return s.Store.Read(ctx)
}

func (s *refusing) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	if err := s.refused(); err != nil {
		return changefeed.Record{}, err
	}
	return s.Store.Heartbeat(ctx, prev, next)
}

// TestRefusedForAWhile: what a store refuses after the candidacy has begun ends no candidacy. It
// is reported and repeated, and the candidate leads again when the store permits it.
func TestRefusedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{Store: memory.NewTable().Store("election")}
		e, err := changefeed.NewElection(s)
		require.NoError(t, err)
		ended, events := make(chan error, 1), e.Events()
		go func() { ended <- e.ElectLeader() }()
		kinds, counted := map[leaderelection.EventKind]int{}, make(chan struct{})
		go func() {
			defer close(counted)
			for n := range events {
				if n.Err != nil && n.Kind != leaderelection.EventLost && n.Kind != leaderelection.EventEnded {
					require.ErrorIs(t, n.Err, changefeed.ErrUnsuitable)
					kinds[n.Kind]++
				}
			}
		}()
		time.Sleep(10 * time.Second)
		l := e.Current().Leadership
		require.NoError(t, l.Err())
		before := s.requests.Load()
		s.refuses.Store(true)
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
		require.Equal(t, leaderelection.Follower, e.Current().Role)
		require.NoError(t, e.Current().Err)
		require.Less(t, s.requests.Load()-before, int64(150), "requests in 120 heartbeats")
		s.refuses.Store(false)
		time.Sleep(10 * time.Second)
		require.Greater(t, e.Current().Leadership.Token(), l.Token())
		require.NoError(t, e.Resign())
		require.NoError(t, <-ended)
		<-counted
		require.Positive(t, kinds[leaderelection.EventChecked])
		require.Positive(t, kinds[leaderelection.EventRequestRejected])
	})
}

// TestConnectionClosed: a store whose connection was closed cannot recover, and ends candidacies.
func TestConnectionClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{Store: memory.NewTable().Store("election")}
		e, err := changefeed.NewElection(s)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		time.Sleep(10 * time.Second)
		l := e.Current().Leadership
		s.closed.Store(true)
		time.Sleep(10 * time.Second)
		require.NotEmpty(t, ended)
		require.ErrorIs(t, <-ended, leaderelection.ErrConnClosed)
		require.ErrorIs(t, l.Err(), leaderelection.ErrConnClosed)
	})
}

// forging is a store whose feeds also deliver what comes from forged.
type forging struct {
	changefeed.Store
	forged chan changefeed.Event
}

func (s *forging) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := s.Store.Subscribe(ctx)
	return &forgedFeed{f, s.forged}, err
}

type forgedFeed struct {
	changefeed.Feed
	forged chan changefeed.Event
}

func (f *forgedFeed) Next(ctx context.Context) (changefeed.Event, error) {
	for {
		try, cancel := context.WithTimeout(ctx, time.Millisecond)
		e, err := f.Feed.Next(try)
		timedOut := try.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !timedOut {
			return e, err
		}
		select {
		case e := <-f.forged:
			return e, nil
		default:
		}
	}
}

// TestForgedHint: a feed's hint that the election has ended ends nothing.
func TestForgedHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &forging{Store: memory.NewTable().Store("election"), forged: make(chan changefeed.Event, 1)}
		e, err := changefeed.NewElection(s)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		time.Sleep(10 * time.Second)
		l := e.Current().Leadership
		require.NoError(t, l.Err())
		r, err := s.Read(context.Background())
		require.NoError(t, err)
		r.Ended, r.Seq, r.Version = true, r.Seq+1000, "forged"
		s.forged <- changefeed.Event{Record: r, Hint: true}
		time.Sleep(10 * time.Second)
		require.Empty(t, s.forged)
		require.Empty(t, ended)
		require.NoError(t, l.Err())
		require.NoError(t, e.Resign())
		require.NoError(t, <-ended)
	})
}
