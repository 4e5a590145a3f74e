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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// shared is the server of most tests.
var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Redis() }}

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Tests(m)) }

// connect returns a client that is closed when the test ends. change may be nil.
func connect(t testing.TB, addr string, change func(*driver.Options)) *driver.Client {
	t.Helper()
	opt := &driver.Options{Addr: addr}
	if change != nil {
		change(opt)
	}
	client := driver.NewClient(opt)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// startServer starts a server until the test ends. It skips the test if Redis is not installed.
func startServer(t testing.TB, args ...string) *dbserver.Server {
	t.Helper()
	return dbserver.StartServer(t, func() (*dbserver.Server, error) {
		return dbserver.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	})
}

// startCluster starts a Redis Cluster of one server.
func startCluster(t testing.TB) *dbserver.Server {
	t.Helper()
	server := startServer(t, "--cluster-enabled", "yes")
	operator := connect(t, server.Addr(), nil)
	require.NoError(t, operator.ClusterAddSlotsRange(fixture.Context(t), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := operator.ClusterInfo(fixture.Context(t)).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, fixture.Patience, 10*time.Millisecond)
	return server
}

// startReplica starts a replica of a server, and waits until the server reports it.
func startReplica(t testing.TB, server *dbserver.Server) *dbserver.Server {
	t.Helper()
	replica := startServer(t, "--replicaof", "127.0.0.1 "+server.Port())
	operator := connect(t, server.Addr(), nil)
	require.Eventually(t, func() bool {
		role, err := operator.Do(fixture.Context(t), "ROLE").Slice()
		return err == nil && len(role[2].([]any)) == 1
	}, fixture.Patience, 10*time.Millisecond)
	return replica
}

func newStore(t testing.TB, client driver.UniversalClient, key string, opts ...redis.Option) *redis.Store {
	t.Helper()
	s, err := redis.NewStore(client, key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

var lastKey atomic.Int64

// newKey returns a key that no other test uses.
func newKey() string { return fmt.Sprintf("the naïve 'key' no. %d", lastKey.Add(1)) }

// newFactory returns a factory of backends on the server that serverOf returns.
func newFactory(serverOf func(testing.TB) *dbserver.Server, change func(*driver.Options)) storetest.Factory {
	return func(t testing.TB) *storetest.Backend {
		server := serverOf(t)
		key := newKey()
		operator := connect(t, server.Addr(), change)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := redis.NewStore(connect(t, server.Addr(), change), key)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) { require.NoError(t, operator.Del(fixture.Context(t), key).Err()) },
			Put: func(t testing.TB, name string) {
				require.NoError(t, operator.Publish(fixture.Context(t), key, name).Err())
			},
			Is: func(change any, name string) bool {
				return change == redis.Change{Channel: key, Payload: name}
			},
			Restart:  func(t testing.TB) { require.NoError(t, server.Restart()) },
			Patience: fixture.Patience,
		}
	}
}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, client driver.UniversalClient, key string, opts ...redis.Option) (*redis.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, client, key, opts...)
	return s, fixture.CreateRecord(t, s)
}

// countRequests counts the requests of a client, except those of its feeds.
func countRequests(client *driver.Client) *atomic.Int64 {
	var n atomic.Int64
	client.AddHook(countingHook{&n})
	return &n
}

// countingHook implements [driver.Hook].
type countingHook struct{ n *atomic.Int64 }

func (h countingHook) DialHook(next driver.DialHook) driver.DialHook { return next }

func (h countingHook) ProcessHook(next driver.ProcessHook) driver.ProcessHook {
	return func(ctx context.Context, cmd driver.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h countingHook) ProcessPipelineHook(next driver.ProcessPipelineHook) driver.ProcessPipelineHook {
	return next
}
