//go:build unix

package redis_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore(t *testing.T) { storetest.Run(t, backendOn(shared.Get, nil)) }

// TestStoreElsewise: clients of other kinds make no difference.
func TestStoreElsewise(t *testing.T) {
	for name, change := range map[string]func(*driver.Options){
		"Protocol2":      func(o *driver.Options) { o.Protocol = 2 },
		"OtherDatabase":  func(o *driver.Options) { o.DB = 3 },
		"ContextTimeout": func(o *driver.Options) { o.ContextTimeoutEnabled = true },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				if c.Name != "Restart" && c.Name != "FeedDeletedRecord" {
					t.Run(c.Name, func(t *testing.T) { c.Run(t, backendOn(shared.Get, change)) })
				}
			}
		})
	}
}

// TestElections plays two cases at a time, and so the one that kills its server has one
// of its own.
func TestElections(t *testing.T) {
	own := func(t testing.TB) *dbserver.Server {
		shared.Get(t) // it is installed
		server, err := dbserver.Redis()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		return server
	}
	for _, c := range storetest.ElectionCases() {
		at := shared.Get
		if c.Name == "ServerRestart" {
			at = own
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, backendOn(at, nil))
		})
	}
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	server, key := shared.Get(t), newKey()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, newClient(t, network.Addr(), nil), key), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
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

// TestArguments: what cannot be used is refused by New.
func TestArguments(t *testing.T) {
	client := newClient(t, "127.0.0.1:1", nil)
	ring := driver.NewRing(&driver.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	for name, try := range map[string]func() (*redis.Store, error){
		"NoClient":      func() (*redis.Store, error) { return redis.New(nil, "k") },
		"NilClient":     func() (*redis.Store, error) { return redis.New((*driver.Client)(nil), "k") },
		"NilCluster":    func() (*redis.Store, error) { return redis.New((*driver.ClusterClient)(nil), "k") },
		"Ring":          func() (*redis.Store, error) { return redis.New(ring, "k") },
		"EmptyKey":      func() (*redis.Store, error) { return redis.New(client, "") },
		"NulInKey":      func() (*redis.Store, error) { return redis.New(client, "\x00") },
		"NilOption":     func() (*redis.Store, error) { return redis.New(client, "k", nil) },
		"QuietTooShort": func() (*redis.Store, error) { return redis.New(client, "k", redis.WithQuiet(0)) },
		"EmptyChannel":  func() (*redis.Store, error) { return redis.New(client, "k", redis.WithChannel("")) },
		"OwnChannel":    func() (*redis.Store, error) { return redis.New(client, "k", redis.WithChannel("changefeed:0:k")) },
	} {
		_, err := try()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
	}
}

// TestTheClientIsTheCallers: it outlives the store, and its options are as they were.
func TestTheClientIsTheCallers(t *testing.T) {
	client := newClient(t, shared.Get(t).Addr(), nil)
	before := *client.Options()
	s, r := created(t, client, newKey())
	tells(t, subscribe(t, s), "the record", r.Version)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(bounded(t)).Err())
	after := *client.Options()
	before.Dialer, after.Dialer = nil, nil // functions cannot be compared
	before.DialerRetryBackoff, after.DialerRetryBackoff = nil, nil
	require.Equal(t, before, after)
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

// TestDependencies: a program that imports this store links no driver of another.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "github.com/redis/go-redis/v9\n")
	for _, other := range []string{"jackc", "etcd", "nats-io", "mongo", "rethinkdb", "testify"} {
		require.NotContains(t, string(out), other)
	}
}
