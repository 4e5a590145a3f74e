//go:build unix

package redis_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestOtherData: what came to the key after Start is neither replaced nor believed.
func TestOtherData(t *testing.T) {
	client, key := newClient(t, shared.Get(t).Addr(), nil), newKey()
	s := newStore(t, client, key)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, client.Set(bounded(t), key, "precious", 0).Err())
	require.ErrorIs(t, s.Create(bounded(t), blank), changefeed.ErrUnsuitable)
	_, err := s.Read(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	value, err := client.Get(bounded(t), key).Result()
	require.NoError(t, err)
	require.Equal(t, "precious", value)
}

// TestRefusesText: what would come back another is refused, and nothing is written.
func TestRefusesText(t *testing.T) {
	s, r := created(t, newClient(t, shared.Get(t).Addr(), nil), newKey())
	next := r
	next.Leader = "no UTF-8 \xff"
	_, err := s.Heartbeat(bounded(t), r, next)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	beat(t, s, r)
}

// TestTrapRetries: the driver repeats a request whose answer was lost, which would be a
// conflict with itself.
func TestTrapRetries(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	var connections atomic.Int64
	client := newClient(t, proxy.Addr(), func(o *driver.Options) {
		o.ReadTimeout = 100 * time.Millisecond
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if connections.Add(1) > 1 { // the first is lost with its answer; what follows goes past it
				addr = server.Addr()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	key := newKey()
	_, r := created(t, newClient(t, server.Addr(), nil), key)
	s := newStore(t, client, key)
	_, err := s.Read(bounded(t)) // over the first connection
	require.NoError(t, err)
	proxy.CutAnswers()
	t.Cleanup(proxy.Heal)
	r = beat(t, s, r) // sent twice, and carried out once
	require.Greater(t, connections.Load(), int64(1))
	now, err := newStore(t, newClient(t, server.Addr(), nil), key).Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
}

// TestTrapNothingSaved: a server that keeps nothing loses the record at a restart, and
// feeds say so.
func TestTrapNothingSaved(t *testing.T) {
	shared.Get(t) // Redis is installed
	server, err := dbserver.Redis("--appendonly", "no")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client := newClient(t, server.Addr(), nil)
	s, r := created(t, client, newKey())
	f := subscribe(t, s)
	tells(t, f, "the record", r.Version)
	require.NoError(t, server.Restart())
	_, err = f.Next(bounded(t))
	require.Error(t, err)
	_, err = s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	e, err := subscribe(t, s).Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Missing)
	b := blank
	b.Epoch = "epoch two"
	require.NoError(t, s.Create(bounded(t), b))
	_, err = s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrConflict)
}

// TestTrapSnapshot: a server that was restarted from a snapshot has an older record than
// candidates have seen. Somebody leads again all the same.
func TestTrapSnapshot(t *testing.T) {
	shared.Get(t) // Redis is installed
	server, err := dbserver.Redis("--appendonly", "no")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client := newClient(t, server.Addr(), nil)
	s := newStore(t, client, newKey())
	election, err := changefeed.NewElection(s, changefeed.WithHeartbeat(200*time.Millisecond))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- election.ElectLeader() }()
	defer func() {
		electiontest.Confirm(t, election.Resign)
		require.NoError(t, <-ended)
	}()
	f := subscribe(t, s)
	var saved, last changefeed.Record
	for last.Seq < saved.Seq+3 || saved.Term == 0 {
		e, err := f.Next(bounded(t))
		require.NoError(t, err)
		if last = e.Record; last.Term > 0 && saved.Term == 0 {
			require.NoError(t, client.Save(bounded(t)).Err())
			saved = last
		}
	}
	require.NoError(t, server.Restart())
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Less(t, r.Seq, last.Seq)
	require.Eventually(t, func() bool {
		now, err := s.Read(bounded(t))
		return err == nil && now.Seq > last.Seq && election.Current().Role == leaderelection.Leader
	}, patience, 20*time.Millisecond)
}

// TestClosedClient: a client that was closed too early is told as such.
func TestClosedClient(t *testing.T) {
	client := driver.NewClient(&driver.Options{Addr: shared.Get(t).Addr()})
	s, r := created(t, client, newKey())
	require.NoError(t, client.Close())
	_, err := s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "the client was closed")
}
