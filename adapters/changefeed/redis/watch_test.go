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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
)

// TestFollowersReadNothing: the feed carries the record, and a heartbeat is one request.
func TestFollowersReadNothing(t *testing.T) {
	server := shared.Get(t)
	key := newKey()
	leads, follows := newClient(t, server.Addr(), nil), newClient(t, server.Addr(), nil)
	leader, r := created(t, leads, key)
	f := subscribe(t, newStore(t, follows, key, redis.WithQuiet(time.Hour)))
	tells(t, f, "the record", r.Version)
	r = beat(t, leader, r) // the script is known from here on
	tells(t, f, "the first heartbeat", r.Version)
	asked, read := calls(leads), calls(follows)
	for range 20 {
		r = beat(t, leader, r)
		tells(t, f, "a heartbeat", r.Version)
	}
	require.EqualValues(t, 20, asked.Load(), "requests of the leader")
	require.Zero(t, read.Load(), "requests of the follower")
}

// TestTrapChannelsHaveNoDatabase: equal keys of two databases do not hear of each other.
func TestTrapChannelsHaveNoDatabase(t *testing.T) {
	server := shared.Get(t)
	key := newKey()
	one, first := created(t, newClient(t, server.Addr(), nil), key, redis.WithQuiet(time.Hour))
	two, other := created(t, newClient(t, server.Addr(), func(o *driver.Options) { o.DB = 5 }), key)
	f := subscribe(t, one)
	tells(t, f, "the record", first.Version)
	beat(t, two, other)
	next := beat(t, one, first)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, next.Version, e.Record.Version)
}

// TestTrapForeignMessages: what others publish on the channel is not believed.
func TestTrapForeignMessages(t *testing.T) {
	client, key := newClient(t, shared.Get(t).Addr(), nil), newKey()
	s, r := created(t, client, key, redis.WithQuiet(time.Hour))
	f := subscribe(t, s)
	tells(t, f, "the record", r.Version)
	for _, payload := range []string{"", "hello", "1 {}", `1 {"format":"changefeed/1","epoch":"another","seq":99,"version":"x"}`, `1 {"format":"changefeed/1","epoch":"epoch","seq":0,"version":"x"}`} {
		require.NoError(t, client.Publish(bounded(t), "changefeed:0:"+key, payload).Err())
	}
	r = beat(t, s, r)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, r.Version, e.Record.Version)
}

// TestForgedMessages: whoever may PUBLISH on the channel needs no permission for the key. A
// message is believed to be a heartbeat at most; any other makes the feed read the record, and
// delivers nothing if that is as before.
func TestForgedMessages(t *testing.T) {
	server := shared.Get(t)
	operator, key := newClient(t, server.Addr(), nil), newKey()
	s, r := created(t, operator, key)
	client := newClient(t, server.Addr(), nil)
	f := subscribe(t, newStore(t, client, key, redis.WithQuiet(time.Hour)))
	tells(t, f, "the record", r.Version)
	reads := calls(client)
	send := func(r changefeed.Record) {
		require.NoError(t, operator.Publish(bounded(t), "changefeed:0:"+key, "1 "+codec.EncodeMessage(r)).Err())
	}

	for what, forged := range forgeries(r) {
		before := reads.Load()
		send(forged)
		require.Eventually(t, func() bool { return reads.Load() > before }, patience, time.Millisecond, what)
		tellsNothing(t, f, what)
	}
	forged := r
	forged.Seq, forged.Version = r.Seq+1, "forged"
	send(forged)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Hint, "a heartbeat is not delivered as a hint")
	r = beat(t, s, r) // with the Seq of the forged one
	e, err = f.Next(bounded(t))
	require.NoError(t, err)
	require.False(t, e.Hint, "the record was read")
	require.Equal(t, r, e.Record)
}

// forgeries are messages that a client can send which has no permission for the record: what
// they claim, of the record that follows r.
func forgeries(r changefeed.Record) map[string]changefeed.Record {
	all := map[string]changefeed.Record{}
	for name, change := range map[string]func(*changefeed.Record){
		"the end of the election": func(r *changefeed.Record) { r.Ended = true },
		"the last term":           func(r *changefeed.Record) { r.Term = 1<<63 - 2 },
		"a release":               func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		"another leader":          func(r *changefeed.Record) { r.Leader, r.Session = "q", "q's" },
		"a nominee":               func(r *changefeed.Record) { r.Nominee = "q" },
		"a short lease":           func(r *changefeed.Record) { r.TTL = 1 },
		"another epoch":           func(r *changefeed.Record) { r.Epoch = "another" },
		"a distant heartbeat":     func(r *changefeed.Record) { r.Seq += 1000 },
	} {
		forged := r
		forged.Seq++
		change(&forged)
		all[name+", with the true version"] = forged
		forged.Version = "forged"
		all[name] = forged
	}
	return all
}

// TestTrapSilentReconnect: a feed whose connection is lost says so, and at once, also
// when the server cannot be reached any more.
func TestTrapSilentReconnect(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	var dead atomic.Bool
	client := newClient(t, proxy.Addr(), func(o *driver.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dead.Load() {
				<-ctx.Done() // a network that drops everything
				return nil, ctx.Err()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	s, r := created(t, client, newKey(), redis.WithQuiet(time.Hour))
	f := subscribe(t, s)
	tells(t, f, "the record", r.Version)
	dead.Store(true)
	proxy.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := f.Next(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the feed waits for the network: %v", err)
	require.NoError(t, f.Close())
	dead.Store(false)
}

// TestChangesOfPlace: Changes delivers the changes of the given place, and no others.
func TestChangesOfPlace(t *testing.T) {
	client, key := newClient(t, shared.Get(t).Addr(), nil), newKey()
	s, r := created(t, client, key)
	_, err := s.Changes(bounded(t), "changefeed:0:"+key)
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	changes, err := s.Changes(bounded(t), key+" another")
	require.NoError(t, err)
	defer changes.Close()
	beat(t, s, r)
	require.NoError(t, client.Publish(bounded(t), key, "no").Err())
	require.NoError(t, client.Publish(bounded(t), key+" another", "yes").Err())
	c, err := changes.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, redis.Change{Channel: key + " another", Payload: "yes"}, c)
}
