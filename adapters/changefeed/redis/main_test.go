//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Redis() }}

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Tests(m)) }

// patience is how long anything may take on a machine that is busy.
const patience = 20 * time.Second

// closes is longer than Close takes there, which promises two seconds.
const closes = 10 * time.Second

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newClient is a client of the test's own; change may be nil.
func newClient(t testing.TB, addr string, change func(*driver.Options)) *driver.Client {
	t.Helper()
	opt := &driver.Options{Addr: addr}
	if change != nil {
		change(opt)
	}
	client := driver.NewClient(opt)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// startServer starts a server of the test's own.
func startServer(t testing.TB, args ...string) *dbserver.Server {
	t.Helper()
	shared.Get(t) // Redis is installed
	server, err := dbserver.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// startCluster starts a Redis Cluster of one server.
func startCluster(t testing.TB) *dbserver.Server {
	t.Helper()
	server := startServer(t, "--cluster-enabled", "yes")
	admin := newClient(t, server.Addr(), nil)
	require.NoError(t, admin.ClusterAddSlotsRange(bounded(t), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := admin.ClusterInfo(bounded(t)).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, patience, 10*time.Millisecond)
	return server
}

// startReplica starts a replica of a server, and waits until that counts it.
func startReplica(t testing.TB, server *dbserver.Server) *dbserver.Server {
	t.Helper()
	replica := startServer(t, "--replicaof", "127.0.0.1 "+server.Port())
	admin := newClient(t, server.Addr(), nil)
	require.Eventually(t, func() bool {
		role, err := admin.Do(bounded(t), "ROLE").Slice()
		return err == nil && len(role[2].([]any)) == 1
	}, patience, 10*time.Millisecond)
	return replica
}

func newStore(t testing.TB, client driver.UniversalClient, key string, opts ...redis.Option) *redis.Store {
	t.Helper()
	s, err := redis.New(client, key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

var keys atomic.Int64

// newKey is one that no other test has.
func newKey() string { return fmt.Sprintf("the naïve 'key' no. %d", keys.Add(1)) }

func backendOn(at func(testing.TB) *dbserver.Server, change func(*driver.Options)) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server := at(t)
		key := newKey()
		operator := newClient(t, server.Addr(), change)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := redis.New(newClient(t, server.Addr(), change), key)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) { require.NoError(t, operator.Del(bounded(t), key).Err()) },
			Put:  func(t testing.TB, name string) { require.NoError(t, operator.Publish(bounded(t), key, name).Err()) },
			Is: func(change any, name string) bool {
				return change == redis.Change{Channel: key, Payload: name}
			},
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: patience,
		}
	}
}

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

// tellsNothing: the feed has nothing to deliver.
func tellsNothing(t testing.TB, f changefeed.Feed, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	e, err := f.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "after a forged message, %s, the feed delivers %+v", what, e)
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
