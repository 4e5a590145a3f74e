//go:build unix

package redis_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestFeed_DeliversRecordsWithoutReads checks that followers do not read the record when messages contain it,
// and that a heartbeat is a single request.
func TestFeed_DeliversRecordsWithoutReads(t *testing.T) {
	server := shared.Get(t)
	key := newKey()
	leaderClient, followerClient := connect(t, server.Addr(), nil), connect(t, server.Addr(), nil)
	leader, r := createRecord(t, leaderClient, key)
	f := fixture.SubscribeTo(t, newStore(t, followerClient, key, redis.WithQuiet(time.Hour)), r)
	r = fixture.Heartbeat(t, leader, r) // the first heartbeat also loads the script
	fixture.AwaitRecord(t, f, r)
	writes, reads := countRequests(leaderClient), countRequests(followerClient)
	for range 20 {
		r = fixture.Heartbeat(t, leader, r)
		fixture.AwaitRecord(t, f, r)
	}
	require.EqualValues(t, 20, writes.Load(), "requests of the leader")
	require.Zero(t, reads.Load(), "requests of the follower")
}

// TestFeed_IgnoresSameKeyInOtherDatabase checks that a feed does not receive the writes to the same key of another
// database: channels do not belong to a database.
func TestFeed_IgnoresSameKeyInOtherDatabase(t *testing.T) {
	server := shared.Get(t)
	key := newKey()
	one, first := createRecord(t, connect(t, server.Addr(), nil), key, redis.WithQuiet(time.Hour))
	two, other := createRecord(t, connect(t, server.Addr(), func(o *driver.Options) { o.DB = 5 }), key)
	f := fixture.SubscribeTo(t, one, first)
	fixture.Heartbeat(t, two, other)
	next := fixture.Heartbeat(t, one, first)
	e := fixture.NextEvent(t, f)
	require.Equal(t, next.Version, e.Record.Version)
}

// TestFeed_SkipsUnrelatedMessages checks that a feed does not deliver a message of another client that is not a
// record, or a record of another epoch or an earlier state.
func TestFeed_SkipsUnrelatedMessages(t *testing.T) {
	client, key := connect(t, shared.Get(t).Addr(), nil), newKey()
	s, r := createRecord(t, client, key, redis.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	for _, payload := range []string{"", "hello", "1 {}", `1 {"format":"changefeed/1","epoch":"another","seq":99,"version":"x"}`, `1 {"format":"changefeed/1","epoch":"epoch","seq":0,"version":"x"}`} {
		require.NoError(t, client.Publish(fixture.Context(t), "changefeed:0:"+key, payload).Err())
	}
	r = fixture.Heartbeat(t, s, r)
	e := fixture.NextEvent(t, f)
	require.Equal(t, r.Version, e.Record.Version)
}

// TestFeed_DoesNotTrustForgedMessages checks that a feed does not trust a message that may be forged: a client
// may publish on the channel without permission for the key. The feed delivers a heartbeat as a hint; after any
// other message it reads the record, and delivers nothing if the record has not changed.
func TestFeed_DoesNotTrustForgedMessages(t *testing.T) {
	server := shared.Get(t)
	operator, key := connect(t, server.Addr(), nil), newKey()
	s, r := createRecord(t, operator, key)
	client := connect(t, server.Addr(), nil)
	f := fixture.SubscribeTo(t, newStore(t, client, key, redis.WithQuiet(time.Hour)), r)
	reads := countRequests(client)
	fixture.RunForgedMessages(t, s, f, r, func(r changefeed.Record) {
		require.NoError(t, operator.Publish(fixture.Context(t), "changefeed:0:"+key, "1 "+store.EncodeMessage(r)).Err())
	}, reads.Load)
}

// TestFeed_EndsIfConnectionIsLost checks that a feed ends immediately when its connection is lost, although the driver
// would reconnect silently. The server cannot be reached afterwards.
func TestFeed_EndsIfConnectionIsLost(t *testing.T) {
	server := shared.Get(t)
	proxy := dbserver.StartProxy(t, server.Addr())
	var dead atomic.Bool
	healed := make(chan struct{})
	client := connect(t, proxy.Addr(), func(o *driver.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dead.Load() {
				<-healed // block, as if the network dropped all packets
				return nil, errors.New("no answer")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	s, r := createRecord(t, client, newKey(), redis.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	t.Cleanup(func() { close(healed) })
	dead.Store(true)
	proxy.Drop()
	ctx := fixture.Context(t)
	_, err := f.Next(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the feed waits for the network: %v", err)
	require.NoError(t, f.Close())
}

// TestChanges_DeliversOnlyGivenChannel checks that Changes delivers the messages of the given channel, and no others.
func TestChanges_DeliversOnlyGivenChannel(t *testing.T) {
	client, key := connect(t, shared.Get(t).Addr(), nil), newKey()
	s, r := createRecord(t, client, key)
	_, err := s.Changes(fixture.Context(t), "changefeed:0:"+key)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	changes, err := s.Changes(fixture.Context(t), key+" another")
	require.NoError(t, err)
	defer changes.Close()
	fixture.Heartbeat(t, s, r)
	require.NoError(t, client.Publish(fixture.Context(t), key, "no").Err())
	require.NoError(t, client.Publish(fixture.Context(t), key+" another", "yes").Err())
	c := fixture.NextEvent(t, changes)
	require.Equal(t, redis.Change{Channel: key + " another", Payload: "yes"}, c)
}
