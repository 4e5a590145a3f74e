package zookeeper

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sessionTimeout is the longest timeout that the servers of startServers grant.
const sessionTimeout = 4 * time.Second

// startServers starts real servers until the test ends. It skips the test if the machine has no
// ZooKeeper, unless ZKTEST_REAL is "required".
func startServers(t *testing.T, servers int) *ensemble.Ensemble {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{
		Backend: ensemble.Process, Servers: servers, TickTime: sessionTimeout / 20,
	})
	if err != nil {
		testenv.SkipMissing(t, "Apache ZooKeeper", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := e.Log(0)
			t.Logf("last lines of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
		require.NoError(t, e.Close())
	})
	return e
}

// newProxy starts a proxy of the server with the given address until the test ends.
func newProxy(t testing.TB, target string) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// connect returns a connection that is closed when the test ends.
func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, sessionTimeout, zk.WithLogger(discardLogger{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

var lastPath atomic.Int64

// newPath returns a path that no other test uses. Its parent and grandparent do not exist.
func newPath() string { return fmt.Sprintf("/elections/%d/record", lastPath.Add(1)) }

func newStore(t testing.TB, conn *zk.Conn, path string, opts ...Option) *Store {
	t.Helper()
	s, err := New(conn, path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// deleteTree deletes a znode and its descendants.
func deleteTree(t testing.TB, conn *zk.Conn, path string) {
	t.Helper()
	children, _, err := conn.Children(path)
	require.NoError(t, err)
	for _, c := range children {
		deleteTree(t, conn, path+"/"+c)
	}
	require.NoError(t, conn.Delete(path, -1))
}

var blank = changefeed.Record{Epoch: "one / 1", Seq: 1, TTL: time.Second}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, conn *zk.Conn, path string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, conn, path)
	require.NoError(t, retry(t, func() error { return s.Create(fixture.Context(t), blank) }))
	return s, readRecord(t, s)
}

func readRecord(t testing.TB, s *Store) (r changefeed.Record) {
	t.Helper()
	require.NoError(t, retry(t, func() (err error) {
		r, err = s.Read(fixture.Context(t))
		return err
	}))
	return r
}

// retry calls f until it returns an error that is not transient. If the machine is busy, an ensemble
// elects another leader and closes all connections.
func retry(t testing.TB, f func() error) error {
	for ctx := fixture.Context(t); ; time.Sleep(10 * time.Millisecond) {
		if err := f(); !request.Transient(err) || ctx.Err() != nil {
			return err
		}
	}
}

// requireTree requires that the given znodes, relative to path, exist at path and below.
func requireTree(t testing.TB, conn *zk.Conn, path string, want ...string) {
	t.Helper()
	var got []string
	var walk func(string)
	walk = func(node string) {
		children, _, err := conn.Children(node)
		if err == zk.ErrNoNode {
			return
		}
		require.NoError(t, err)
		got = append(got, strings.TrimPrefix(node, path))
		for _, c := range children {
			walk(node + "/" + c)
		}
	}
	walk(path)
	require.ElementsMatch(t, want, got)
}
