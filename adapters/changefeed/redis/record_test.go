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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestStore_KeepsDataOfOtherPrograms checks that data that another program has written to the key is neither
// replaced nor returned as a record.
func TestStore_KeepsDataOfOtherPrograms(t *testing.T) {
	client, key := connect(t, shared.Get(t).Addr(), nil), newKey()
	s := newStore(t, client, key)
	require.NoError(t, s.Start(fixture.Context(t)))
	require.NoError(t, client.Set(fixture.Context(t), key, "precious", 0).Err())
	require.ErrorIs(t, s.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrUnsuitable)
	_, err := s.Read(fixture.Context(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	value, err := client.Get(fixture.Context(t), key).Result()
	require.NoError(t, err)
	require.Equal(t, "precious", value)
}

// TestHeartbeat_RejectsInvalidText checks that a text that the store cannot return unchanged is not written.
func TestHeartbeat_RejectsInvalidText(t *testing.T) {
	s, r := createRecord(t, connect(t, shared.Get(t).Addr(), nil), newKey())
	next := r
	next.Leader = "no UTF-8 \xff"
	_, err := s.Heartbeat(fixture.Context(t), r, next)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	fixture.Heartbeat(t, s, r)
}

// TestHeartbeat_DoesNotConflictWithRetryOfDriver checks that a heartbeat does not conflict with itself when the
// driver retries a request whose reply was lost.
func TestHeartbeat_DoesNotConflictWithRetryOfDriver(t *testing.T) {
	server := shared.Get(t)
	proxy := dbserver.StartProxy(t, server.Addr())
	var connections atomic.Int64
	client := connect(t, proxy.Addr(), func(o *driver.Options) {
		o.ReadTimeout = 100 * time.Millisecond
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if connections.Add(1) > 1 { // Only the first connection uses the proxy, which loses its replies.
				addr = server.Addr()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	key := newKey()
	_, r := createRecord(t, connect(t, server.Addr(), nil), key)
	s := newStore(t, client, key)
	_, err := s.Read(fixture.Context(t)) // this request connects through the proxy
	require.NoError(t, err)
	proxy.CutAnswers()
	t.Cleanup(proxy.Heal)
	r = fixture.Heartbeat(t, s, r) // the driver sends the heartbeat twice, and the server applies it once
	require.Greater(t, connections.Load(), int64(1))
	now, err := newStore(t, connect(t, server.Addr(), nil), key).Read(fixture.Context(t))
	require.NoError(t, err)
	require.Equal(t, r, now)
}

// TestHeartbeat_ReportsRecordLostByRestart checks that the store reports that a restart of a server without files
// has lost the record, and that a heartbeat does not replace the record that is created afterwards.
func TestHeartbeat_ReportsRecordLostByRestart(t *testing.T) {
	server := startServer(t, "--appendonly", "no")
	client := connect(t, server.Addr(), nil)
	s, r := createRecord(t, client, newKey())
	f := fixture.SubscribeTo(t, s, r)
	require.NoError(t, server.Restart())
	_, err := f.Next(fixture.Context(t))
	require.Error(t, err)
	_, err = s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	e := fixture.NextEvent(t, fixture.Subscribe(t, s))
	require.True(t, e.Missing)
	b := fixture.HeldRecord()
	b.Epoch = "epoch two"
	require.NoError(t, s.Create(fixture.Context(t), b))
	_, err = s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrConflict)
}

// TestElection_HasLeaderAfterRestartFromSnapshot checks that a candidate leads after a restart has restored an
// older record than candidates have seen.
func TestElection_HasLeaderAfterRestartFromSnapshot(t *testing.T) {
	server := startServer(t, "--appendonly", "no")
	client := connect(t, server.Addr(), nil)
	s := newStore(t, client, newKey())
	election, err := changefeed.NewElection(s, changefeed.WithHeartbeat(200*time.Millisecond))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- election.ElectLeader() }()
	defer func() {
		electiontest.Confirm(t, election.Resign)
		require.NoError(t, <-ended)
	}()
	f := fixture.Subscribe(t, s)
	var saved, last changefeed.Record
	for last.Seq < saved.Seq+3 || saved.Term == 0 {
		e := fixture.NextEvent(t, f)
		if last = e.Record; last.Term > 0 && saved.Term == 0 {
			require.NoError(t, client.Save(fixture.Context(t)).Err())
			saved = last
		}
	}
	require.NoError(t, server.Restart())
	r := fixture.Read(t, s)
	require.Less(t, r.Seq, last.Seq)
	require.Eventually(t, func() bool {
		now, err := s.Read(fixture.Context(t))
		return err == nil && now.Seq > last.Seq && election.Current().Role == leaderelection.Leader
	}, fixture.Patience, 20*time.Millisecond)
}

// TestHeartbeat_ErrorNamesClosedClient checks that the error of a heartbeat states that the client was
// closed.
func TestHeartbeat_ErrorNamesClosedClient(t *testing.T) {
	client := driver.NewClient(&driver.Options{Addr: shared.Get(t).Addr()})
	s, r := createRecord(t, client, newKey())
	require.NoError(t, client.Close())
	_, err := s.Heartbeat(fixture.Context(t), r, r)
	fixture.RequireUnsuitable(t, err, "the client was closed")
}

// TestHeartbeat_ForbiddenPublishChangesNothing checks that a heartbeat does not change the record if the user lacks the
// permission to publish.
func TestHeartbeat_ForbiddenPublishChangesNothing(t *testing.T) {
	server, key := shared.Get(t), newKey()
	operator := connect(t, server.Addr(), nil)
	s, r := createRecord(t, operator, key)
	require.NoError(t, operator.Do(fixture.Context(t), "ACL", "SETUSER", "mute", "reset", "on", ">secret", "+@all", "-publish", "&*", "~*").Err())
	mute := newStore(t, connect(t, server.Addr(), func(o *driver.Options) { o.Username, o.Password = "mute", "secret" }), key)
	_, err := mute.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	got := fixture.Read(t, s)
	require.Equal(t, r, got)
}
