package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect makes a client of the addresses, as host:port, which ends with the test.
func connect(t testing.TB, addrs []string, change ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()}
	for _, c := range change {
		c(&cfg)
	}
	client, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func proxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

var places atomic.Int64

// place is a key that nobody else uses.
func place() string { return fmt.Sprint("elections/", places.Add(1)) }

func newStore(t testing.TB, client *clientv3.Client, key string) *Store {
	t.Helper()
	s, err := New(client, key)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func ctx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var blank = changefeed.Record{Epoch: "one", Seq: 1, TTL: time.Second}

// created is a store and its record.
func created(t testing.TB, client *clientv3.Client, key string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, client, key)
	require.NoError(t, s.Create(ctx(t), blank))
	r, err := s.Read(ctx(t))
	require.NoError(t, err)
	return s, r
}

// beat writes prev once more.
func beat(t testing.TB, s *Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	next := prev
	next.Seq++
	r, err := s.Heartbeat(ctx(t), prev, next)
	require.NoError(t, err)
	return r
}

func subscribe(t testing.TB, s *Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(ctx(t))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// tells waits until the feed has told of r.
func tells(t testing.TB, f changefeed.Feed, r changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(ctx(t))
		require.NoError(t, err)
		if e.Record.Version == r.Version {
			return
		}
	}
}

// ends waits for the feed's error.
func ends(t testing.TB, f changefeed.Feed) error {
	t.Helper()
	for {
		if _, err := f.Next(ctx(t)); err != nil {
			return err
		}
	}
}
