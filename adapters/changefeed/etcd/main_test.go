package etcd

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
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

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, client *clientv3.Client, key string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, client, key)
	return s, fixture.CreateRecord(t, s)
}
