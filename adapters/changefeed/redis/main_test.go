//go:build unix

package redis_test

import (
	"context"
	"fmt"
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

func TestStore(t *testing.T) { storetest.Run(t, backendOn(shared.Get, nil)) }

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
