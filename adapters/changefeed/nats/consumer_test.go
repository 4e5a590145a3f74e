package nats

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestFeed_EndsIfServerIsKilled checks that a feed ends immediately when its server is killed, and that Close takes
// at most two seconds. The watcher of the client library reports no error, and blocks for five seconds when
// it is stopped.
func TestFeed_EndsIfServerIsKilled(t *testing.T) {
	server := startServer(t)
	s, r := createRecord(t, connect(t, server.Addr()), newBucket())
	// The quiet time is so long that no read of the record ends the feed during the test.
	s.feeds = store.NewFeeds(s.Read, s.watch, time.Hour)
	f := fixture.SubscribeTo(t, s, r)
	c, err := s.Changes(fixture.Context(t), "")
	require.NoError(t, err)
	pending := make(chan error, 1)
	go func() { _, err := f.Next(fixture.Context(t)); pending <- err }()
	require.NoError(t, server.Kill())
	require.ErrorIs(t, <-pending, errDisconnected)
	_, err = c.Next(fixture.Context(t))
	require.ErrorIs(t, err, errDisconnected)
	_, err = f.Next(fixture.Context(t))
	require.ErrorIs(t, err, errDisconnected, "the second call of Next")
	_, err = fixture.Subscribe(t, s).Next(fixture.Context(t))
	require.ErrorIs(t, err, errDisconnected)

	start := time.Now()
	require.NoError(t, f.Close())
	require.Less(t, time.Since(start), closeLimit, "Close of a feed")
	start = time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(start), closeLimit, "Close of a store with changes")
	// Start the server again, because the library's goroutines would otherwise run for five more seconds.
	require.NoError(t, server.Start())
}

// TestStore_DoesNotWaitForUnresponsiveServer checks that a feed ends, and that calls and Close do not wait,
// when the server does not respond.
func TestStore_DoesNotWaitForUnresponsiveServer(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s, r := createRecord(t, connect(t, server.Addr()), newBucket())
	f := fixture.SubscribeTo(t, s, r)
	require.NoError(t, server.Freeze())
	defer server.Thaw()
	_, err := f.Next(fixture.Context(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "after the quiet time")
	start := time.Now()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Heartbeat(short, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.Less(t, time.Since(start), closeLimit)
	server.Thaw()
}

// TestFeed_ReadsRecordIfConsumerIsDropped checks that a feed reads the record after the quiet time when the
// server has dropped its consumer, which the server does not report.
func TestFeed_ReadsRecordIfConsumerIsDropped(t *testing.T) {
	t.Parallel()
	conn := connect(t, shared.Get(t).Addr())
	bucket := newBucket()
	s, r := createRecord(t, conn, bucket)
	f := fixture.SubscribeTo(t, s, r)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.Stream(fixture.Context(t), "KV_"+bucket)
	require.NoError(t, err)
	names := stream.ConsumerNames(fixture.Context(t))
	n := 0
	for name := range names.Name() {
		require.NoError(t, stream.DeleteConsumer(fixture.Context(t), name))
		n++
	}
	require.NoError(t, names.Err())
	require.Equal(t, 1, n)
	start := time.Now()
	r = fixture.Heartbeat(t, s, r)
	fixture.AwaitRecord(t, f, r)
	require.Less(t, time.Since(start), 3*quietTime, "the library takes at least ten seconds")
}

// TestElection_ContinuesAfterLongOutage checks that a candidacy continues when the server is down for longer than the
// library's default of 60 attempts to reconnect.
func TestElection_ContinuesAfterLongOutage(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var attempts atomic.Int64
	conn := connect(t, server.Addr(), nats.ReconnectWait(time.Millisecond),
		nats.ReconnectErrHandler(func(*nats.Conn, error) { attempts.Add(1) }))
	e, err := changefeed.NewElection(newStore(t, conn, newBucket()))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	waitForToken := func(after int64) (token int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			if l := e.Current().Leadership; l != nil {
				token = l.Token()
			}
			return token > after
		}, fixture.Patience, 5*time.Millisecond)
		return token
	}
	token := waitForToken(0)
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return attempts.Load() > 100 && e.Current().Leadership == nil }, fixture.Patience, 5*time.Millisecond)
	require.NoError(t, server.Start())
	waitForToken(token)
	require.Empty(t, ended)
	electiontest.Confirm(t, e.Resign)
	require.NoError(t, <-ended)
}
