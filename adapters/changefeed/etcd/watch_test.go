package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

func testWatch(t *testing.T, c *etcdserver.Cluster) {
	client := connect(t, c.Endpoints())

	// Fails if a feed does not deliver the current record after the events that it has missed were
	// compacted.
	t.Run("Compacted", func(t *testing.T) {
		p, key := dbserver.StartProxy(t, c.Addr(0)), newKey()
		s, r := createRecord(t, client, key)
		f := fixture.SubscribeTo(t, newStore(t, connect(t, []string{p.Addr()}), key), r)
		first := fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, first) // The watch is established now.
		p.Cut()
		p.Drop()
		last := fixture.Heartbeat(t, s, fixture.Heartbeat(t, s, first))
		revision, err := parseVersion(last.Version)
		require.NoError(t, err)
		_, err = client.Compact(fixture.Context(t), revision)
		require.NoError(t, err)
		p.Heal()
		fixture.AwaitRecord(t, f, last)
		fixture.AwaitRecord(t, f, fixture.Heartbeat(t, s, last))
	})

	// Fails if a write is lost that follows a restart of the server.
	t.Run("ServerRestart", func(t *testing.T) {
		s, r := createRecord(t, client, newKey())
		f := fixture.SubscribeTo(t, s, r)
		c.Kill(0)
		c.Restart(0)
		r = fixture.Heartbeat(t, s, r)
		for {
			e, err := f.Next(fixture.Context(t))
			if err != nil { // The restart took longer than the quiet time.
				f = fixture.Subscribe(t, s)
				continue
			}
			if e.Record.Version == r.Version {
				break
			}
		}
	})

	// Fails if a feed does not detect that its connection is broken without an error, or Close waits
	// for the server.
	t.Run("BrokenConnection", func(t *testing.T) {
		p, key := dbserver.StartProxy(t, c.Addr(0)), newKey()
		_, r := createRecord(t, client, key)
		s := newStore(t, connect(t, []string{p.Addr()}), key)
		f := fixture.SubscribeTo(t, s, r)
		p.Cut()
		begin := time.Now()
		require.ErrorContains(t, fixture.AwaitError(t, f), "after the quiet time")
		require.Less(t, time.Since(begin), 10*time.Second)
		begin = time.Now()
		require.NoError(t, f.Close())
		require.NoError(t, s.Close())
		require.Less(t, time.Since(begin), 10*time.Second) // Each takes two seconds, and longer on a busy machine.
	})
}

// TestMinority fails if a server that has lost contact with the majority does not end its feeds, or
// accepts a heartbeat.
func TestMinority(t *testing.T) {
	t.Parallel()
	c := etcdserver.Start(t, etcdserver.Config{Members: 3})
	s, r := createRecord(t, connect(t, []string{c.Addr(0)}), newKey())
	f := fixture.SubscribeTo(t, s, r)
	r = fixture.Heartbeat(t, s, r)
	fixture.AwaitRecord(t, f, r) // The watch is established now.
	c.Kill(1)
	c.Kill(2)
	require.ErrorIs(t, fixture.AwaitError(t, f), rpctypes.ErrNoLeader)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Heartbeat(ctx, r, r)
	require.Error(t, err)
	for _, definite := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, definite, "it is unknown whether the record was written")
	}
}
