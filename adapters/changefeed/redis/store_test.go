//go:build unix

package redis_test

import (
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore_SatisfiesContract(t *testing.T) { storetest.Run(t, newFactory(shared.Get, nil)) }

// TestStore_IgnoresClientOptions checks that the store satisfies the contract of stores whatever the
// options of the client are.
func TestStore_IgnoresClientOptions(t *testing.T) {
	for name, change := range map[string]func(*driver.Options){
		"Protocol2":      func(o *driver.Options) { o.Protocol = 2 },
		"OtherDatabase":  func(o *driver.Options) { o.DB = 3 },
		"ContextTimeout": func(o *driver.Options) { o.ContextTimeoutEnabled = true },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				if c.Name != "Restart" && c.Name != "FeedDeletedRecord" {
					t.Run(c.Name, func(t *testing.T) { c.Run(t, newFactory(shared.Get, change)) })
				}
			}
		})
	}
}

// TestElections_SatisfyContract tests the contract of elections. The cases run in parallel; the case that kills
// its server uses a separate server.
func TestElections_SatisfyContract(t *testing.T) {
	separate := func(t testing.TB) *dbserver.Server { return startServer(t) }
	fixture.RunElections(t, newFactory(shared.Get, nil), newFactory(separate, nil))
}

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the server has stopped when the
// next leader starts.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	t.Parallel()
	server, key := shared.Get(t), newKey()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr(), nil), key), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

// TestStore_WorksInRedisCluster checks that a store works in Redis Cluster. The cluster has one server.
func TestStore_WorksInRedisCluster(t *testing.T) {
	server := startCluster(t)
	for name, opt := range map[string]*driver.ClusterOptions{
		"Plain": {}, "ReadsFromReplicas": {ReadOnly: true, RouteRandomly: true},
	} {
		t.Run(name, func(t *testing.T) {
			opt.Addrs = []string{server.Addr()}
			client := driver.NewClusterClient(opt)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s, r := createRecord(t, client, "{tag}:"+newKey(), redis.WithRisk(changefeed.RiskFailover))
			f := fixture.SubscribeTo(t, s, r)
			r = fixture.Heartbeat(t, s, r)
			fixture.AwaitRecord(t, f, r)
			_, err := s.Heartbeat(fixture.Context(t), fixture.HeldRecord(), r)
			require.ErrorIs(t, err, changefeed.ErrConflict)
		})
	}
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil client or an empty key.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	client := connect(t, "127.0.0.1:1", nil)
	ring := driver.NewRing(&driver.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	for name, create := range map[string]func() (*redis.Store, error){
		"NoClient":      func() (*redis.Store, error) { return redis.NewStore(nil, "k") },
		"NilClient":     func() (*redis.Store, error) { return redis.NewStore((*driver.Client)(nil), "k") },
		"NilCluster":    func() (*redis.Store, error) { return redis.NewStore((*driver.ClusterClient)(nil), "k") },
		"Ring":          func() (*redis.Store, error) { return redis.NewStore(ring, "k") },
		"EmptyKey":      func() (*redis.Store, error) { return redis.NewStore(client, "") },
		"NulInKey":      func() (*redis.Store, error) { return redis.NewStore(client, "\x00") },
		"NilOption":     func() (*redis.Store, error) { return redis.NewStore(client, "k", nil) },
		"QuietTooShort": func() (*redis.Store, error) { return redis.NewStore(client, "k", redis.WithQuiet(0)) },
		"EmptyChannel":  func() (*redis.Store, error) { return redis.NewStore(client, "k", redis.WithChannel("")) },
		"RecordChannel": func() (*redis.Store, error) { return redis.NewStore(client, "k", redis.WithChannel("changefeed:0:k")) },
	} {
		_, err := create()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
	}
}

// TestClose_KeepsClientOpen checks that the store does not close the client, and does not change its options.
func TestClose_KeepsClientOpen(t *testing.T) {
	client := connect(t, shared.Get(t).Addr(), nil)
	before := *client.Options()
	s, r := createRecord(t, client, newKey())
	fixture.SubscribeTo(t, s, r)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(fixture.Context(t)).Err())
	after := *client.Options()
	before.Dialer, after.Dialer = nil, nil // Functions cannot be compared.
	before.DialerRetryBackoff, after.DialerRetryBackoff = nil, nil
	require.Equal(t, before, after)
}

// TestStore_RecoversFromUnresponsiveConnection checks that a feed detects that its connection has failed
// silently, that calls return when their contexts are done, which the driver does not ensure, that Close does
// not block, and that the store works afterwards.
func TestStore_RecoversFromUnresponsiveConnection(t *testing.T) {
	server := shared.Get(t)
	proxy := dbserver.StartProxy(t, server.Addr())
	key := newKey()
	client := connect(t, proxy.Addr(), func(o *driver.Options) { o.ReadTimeout, o.MaxRetries = 10*time.Second, -1 })
	s, r := createRecord(t, client, key, redis.WithQuiet(2*time.Second))
	fixture.RunUnresponsiveConnection(t, s, newStore(t, connect(t, server.Addr(), nil), key), r,
		func() changefeed.Store { return newStore(t, client, key) }, proxy.Cut, proxy.Heal)
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "github.com/redis/go-redis/v9")
}
