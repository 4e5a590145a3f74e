//go:build unix

package rethinkdb_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the server has stopped when the
// next leader starts.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	addr := serverAddr(t)
	table := newTable(t, connect(t, addr, nil))
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, addr)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

// TestStore_DoesNotWaitForUnresponsiveServer checks that calls, feeds and Close return although the driver blocks: while
// it reconnects to a server that does not respond, it ignores the context of a query.
func TestStore_DoesNotWaitForUnresponsiveServer(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := createRecord(t, operator, table)
	p := dbserver.StartProxy(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(2*time.Second))
	f := fixture.SubscribeTo(t, s, rec)
	p.Cut()
	p.Drop()
	for range 40 { // more calls than the store runs in the background
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		start := time.Now()
		_, err := s.Heartbeat(ctx, rec, fixture.Next(rec))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		fixture.RequireUnknownOutcome(t, err)
		require.Less(t, time.Since(start), 10*time.Second)
	}
	fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
	p.Heal()
	require.Eventually(t, func() bool { // Retry, because an earlier heartbeat may have been applied.
		now, err := s.Read(fixture.Context(t))
		if err == nil {
			rec = now
		}
		return err == nil
	}, fixture.Patience, 10*time.Millisecond)
	rec = fixture.Heartbeat(t, writer, rec)
	fixture.SubscribeTo(t, s, rec)

	other := newStore(t, connect(t, p.Addr(), nil), table)
	f = fixture.SubscribeTo(t, other, rec)
	p.Cut()
	p.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, _ = other.Read(ctx)
	start := time.Now()
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	took := time.Since(start)
	p.Heal() // Restore the network, because closing the session would block without it.
	require.Less(t, took, 8*time.Second, "each Close takes at most two seconds, and longer on a busy machine")
}

// TestFeed_EndsIfConnectionIsLost checks that a feed ends immediately when its connection is lost, because the driver's
// cursors do not resume, and that the next feed delivers the writes in between.
func TestFeed_EndsIfConnectionIsLost(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := createRecord(t, operator, table)
	p := dbserver.StartProxy(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, rec)
	p.Drop()
	fixture.RequireUnknownOutcome(t, fixture.AwaitError(t, f))
	rec = fixture.Heartbeat(t, writer, rec)
	fixture.SubscribeTo(t, s, rec)
}
