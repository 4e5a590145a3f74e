//go:build unix

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// TestTrapHalfOpen: a connection that is dead without a word is found by its feed, calls
// return with their contexts, Close in time, and everything works again afterwards.
func TestTrapHalfOpen(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	table := newTable()
	s, r := created(t, newPool(t, proxy.Addr(), nil), table, postgres.WithQuiet(2*time.Second))
	other := newStore(t, newPool(t, server.Addr(), nil), table)
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	changes, err := s.Changes(bounded(t), "")
	require.NoError(t, err)
	defer changes.Close()
	proxy.Cut()
	t.Cleanup(proxy.Heal)
	r = beat(t, other, r)

	begin := time.Now()
	for name, next := range map[string]func() error{
		"the feed":      func() error { _, err := f.Next(bounded(t)); return err },
		"other changes": func() error { _, err := changes.Next(bounded(t)); return err },
	} {
		err := next()
		require.Error(t, err, name)
		require.NoError(t, bounded(t).Err(), name)
	}
	require.Less(t, time.Since(begin), patience/2, "it takes the quiet time of 2 s twice, and not until the test's patience")

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begin = time.Now()
	_, err = s.Heartbeat(ctx, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Subscribe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), closes)

	blocked := newStore(t, newPool(t, proxy.Addr(), nil), table)
	result := make(chan error, 1)
	go func() { _, err := blocked.Read(context.Background()); result <- err }()
	begin = time.Now()
	require.NoError(t, blocked.Close())
	require.ErrorIs(t, <-result, changefeed.ErrClosed)
	require.Less(t, time.Since(begin), closes)

	proxy.Heal()
	r, err = other.Read(bounded(t))
	require.NoError(t, err)
	tells(t, subscribe(t, s), "what was missed", version(r.Version))
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts, also if the server was killed in between.
func TestPartitions(t *testing.T) {
	server, table := shared.Get(t), newTable()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, newPool(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, func() { require.NoError(t, server.Restart()) })
}
