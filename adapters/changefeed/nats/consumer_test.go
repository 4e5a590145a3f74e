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
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestServerGone: a watcher has no errors, and stopping it takes five seconds while the
// server is away. The feed says at once that it has ended, and closes within two seconds.
func TestServerGone(t *testing.T) {
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s, r := created(t, connect(t, server.Addr()), place())
	f := subscribe(t, s)
	tells(t, f, r)
	c, err := s.Changes(ctx(t), "")
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() { _, err := f.Next(ctx(t)); waits <- err }()
	begin := time.Now()
	require.NoError(t, server.Kill())
	require.ErrorIs(t, <-waits, errDisconnected)
	_, err = c.Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected)
	require.Less(t, time.Since(begin), quiet, "until the error")
	_, err = f.Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected, "the second time")
	_, err = subscribe(t, s).Next(ctx(t))
	require.ErrorIs(t, err, errDisconnected)

	begin = time.Now()
	require.NoError(t, f.Close())
	require.Less(t, time.Since(begin), closes, "Close of a feed")
	begin = time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), closes, "Close of a store with changes")
	require.NoError(t, server.Start()) // the library's goroutines wait for five seconds else
}

// TestServerSilent: a server that says nothing any more is not waited for.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s, r := created(t, connect(t, server.Addr()), place())
	f := subscribe(t, s)
	tells(t, f, r)
	require.NoError(t, server.Freeze())
	defer server.Thaw()
	begin := time.Now()
	_, err = f.Next(ctx(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "after the quiet time")
	require.Less(t, time.Since(begin), 10*time.Second)
	begin = time.Now()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Heartbeat(short, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), closes)
	server.Thaw()
}

// TestConsumerForgotten: a consumer that its server has dropped says nothing. The feed asks
// after the quiet time, and tells what it has missed.
func TestConsumerForgotten(t *testing.T) {
	t.Parallel()
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	s, r := created(t, conn, bucket)
	f := subscribe(t, s)
	tells(t, f, r)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.Stream(ctx(t), "KV_"+bucket)
	require.NoError(t, err)
	names := stream.ConsumerNames(ctx(t))
	n := 0
	for name := range names.Name() {
		require.NoError(t, stream.DeleteConsumer(ctx(t), name))
		n++
	}
	require.NoError(t, names.Err())
	require.Equal(t, 1, n)
	begin := time.Now()
	r = beat(t, s, r)
	tells(t, f, r)
	require.Less(t, time.Since(begin), 3*quiet, "the library itself takes ten seconds and more")
}

// TestLongOutage: a server that is down for more than the library's usual 60 attempts to
// reconnect ends no candidacy.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	shared.Get(t)
	server, err := dbserver.NATS()
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	var attempts atomic.Int64
	conn := connect(t, server.Addr(), nats.ReconnectWait(time.Millisecond),
		nats.ReconnectErrHandler(func(*nats.Conn, error) { attempts.Add(1) }))
	e, err := changefeed.NewElection(newStore(t, conn, place()))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	leads := func(after int64) (token int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			if l := e.Current().Leadership; l != nil {
				token = l.Token()
			}
			return token > after
		}, 30*time.Second, 5*time.Millisecond)
		return token
	}
	token := leads(0)
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return attempts.Load() > 100 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, server.Start())
	leads(token)
	require.Empty(t, ended)
	electiontest.Confirm(t, e.Resign)
	require.NoError(t, <-ended)
}
