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

// connect returns a client of the servers, given as host:port, that is closed when the test ends.
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

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

var lastKey atomic.Int64

// newKey returns a key that no other test uses.
func newKey() string { return fmt.Sprint("elections/", lastKey.Add(1)) }

func newStore(t testing.TB, client *clientv3.Client, key string) *Store {
	t.Helper()
	s, err := New(client, key)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var blank = changefeed.Record{Epoch: "one", Seq: 1, TTL: time.Second}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, client *clientv3.Client, key string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, client, key)
	require.NoError(t, s.Create(testContext(t), blank))
	r, err := s.Read(testContext(t))
	require.NoError(t, err)
	return s, r
}

// heartbeat replaces prev by the same record with the next Seq.
func heartbeat(t testing.TB, s *Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	next := prev
	next.Seq++
	r, err := s.Heartbeat(testContext(t), prev, next)
	require.NoError(t, err)
	return r
}

func subscribe(t testing.TB, s *Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(testContext(t))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// awaitRecord waits until the feed delivers r.
func awaitRecord(t testing.TB, f changefeed.Feed, r changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(testContext(t))
		require.NoError(t, err)
		if e.Record.Version == r.Version {
			return
		}
	}
}

// awaitFeedError waits for the error of the feed.
func awaitFeedError(t testing.TB, f changefeed.Feed) error {
	t.Helper()
	for {
		if _, err := f.Next(testContext(t)); err != nil {
			return err
		}
	}
}
