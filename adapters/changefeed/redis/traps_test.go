//go:build unix

package redis_test

// What Redis and its driver do that a store could stumble over.

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// blank is a record that a candidate holds, so that what follows are heartbeats.
var blank = changefeed.Record{Epoch: "epoch", Leader: strings.Repeat("p", 3000), Session: "p's", Term: 1, Seq: 1, TTL: time.Second}

// created is a store with a record.
func created(t testing.TB, client driver.UniversalClient, key string, opts ...redis.Option) (*redis.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, client, key, opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	return s, r
}

func beat(t testing.TB, s *redis.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	next := prev
	next.Seq++
	r, err := s.Heartbeat(bounded(t), prev, next)
	require.NoError(t, err)
	return r
}

func subscribe(t testing.TB, s *redis.Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// tells waits until the feed tells of a version.
func tells(t testing.TB, f changefeed.Feed, what, version string) {
	t.Helper()
	ctx := bounded(t)
	for {
		e, err := f.Next(ctx)
		require.NoError(t, err, what)
		if e.Record.Version == version {
			return
		}
	}
}

// calls counts the requests of a client, but for those of its feeds.
func calls(client *driver.Client) *atomic.Int64 {
	var n atomic.Int64
	client.AddHook(hook{&n})
	return &n
}

type hook struct{ n *atomic.Int64 }

func (h hook) DialHook(next driver.DialHook) driver.DialHook { return next }

func (h hook) ProcessHook(next driver.ProcessHook) driver.ProcessHook {
	return func(ctx context.Context, cmd driver.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next driver.ProcessPipelineHook) driver.ProcessPipelineHook {
	return next
}

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

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// TestTrapHalfOpen: a connection that is dead without a word is found by its feed, calls
// return with their contexts, which the driver would not have them do, Close in time, and
// everything works again afterwards.
func TestTrapHalfOpen(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	key := newKey()
	client := newClient(t, proxy.Addr(), func(o *driver.Options) { o.ReadTimeout, o.MaxRetries = patience/2, -1 })
	s, r := created(t, client, key, redis.WithQuiet(2*time.Second))
	other := newStore(t, newClient(t, server.Addr(), nil), key)
	f := subscribe(t, s)
	tells(t, f, "the record", r.Version)
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
		require.NotErrorIs(t, err, changefeed.ErrClosed, name)
	}
	require.Less(t, time.Since(begin), patience/2, "it takes the quiet time of 2 s twice, and not until the test's patience")

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begin = time.Now()
	_, err = s.Heartbeat(ctx, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Subscribe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), patience/2, "it does not wait for the driver")

	blocked := newStore(t, client, key)
	result := make(chan error, 1)
	go func() { _, err := blocked.Read(context.Background()); result <- err }()
	begin = time.Now()
	require.NoError(t, blocked.Close())
	require.ErrorIs(t, <-result, changefeed.ErrClosed)
	require.Less(t, time.Since(begin), closes)

	proxy.Heal()
	// A heartbeat that was given up may still be carried out.
	require.Eventually(t, func() bool {
		r, err = other.Read(bounded(t))
		if err != nil {
			return false
		}
		fresh, err := s.Subscribe(bounded(t))
		if err != nil {
			return false
		}
		defer fresh.Close()
		e, err := fresh.Next(bounded(t))
		return err == nil && e.Record.Version == r.Version
	}, patience, 20*time.Millisecond)
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

// TestTrapCluster: in Redis Cluster, here of one server, stores work as elsewhere.
func TestTrapCluster(t *testing.T) {
	server := startCluster(t)
	for name, opt := range map[string]*driver.ClusterOptions{
		"Plain": {}, "ReadsFromReplicas": {ReadOnly: true, RouteRandomly: true},
	} {
		t.Run(name, func(t *testing.T) {
			opt.Addrs = []string{server.Addr()}
			client := driver.NewClusterClient(opt)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s, r := created(t, client, "{tag}:"+newKey(), redis.WithRisk(changefeed.RiskFailover))
			f := subscribe(t, s)
			tells(t, f, "the record", r.Version)
			r = beat(t, s, r)
			tells(t, f, "a write", r.Version)
			_, err := s.Heartbeat(bounded(t), blank, r)
			require.ErrorIs(t, err, changefeed.ErrConflict)
		})
	}
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
