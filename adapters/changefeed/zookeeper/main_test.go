package zookeeper

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sessionTimeout is the longest that servers with this tick grant.
const sessionTimeout = 4 * time.Second

// start starts real servers, which end with the test. With ZKTEST_REAL=required a machine
// that has none fails the test.
func start(t *testing.T, servers int) *ensemble.Ensemble {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{
		Backend: ensemble.Process, Servers: servers, TickTime: sessionTimeout / 20,
	})
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no Apache ZooKeeper to test with: %v", err)
		}
		t.Skipf("NOT TRIED with Apache ZooKeeper: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := e.Log(0)
			t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
		require.NoError(t, e.Close())
	})
	return e
}

// connect makes a connection, which ends with the test.
func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, sessionTimeout, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

var places atomic.Int64

// place is a path that nobody else uses, two levels below what exists.
func place() string { return fmt.Sprintf("/elections/%d/record", places.Add(1)) }

func newStore(t testing.TB, conn *zk.Conn, path string, opts ...Option) *Store {
	t.Helper()
	s, err := New(conn, path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// remove deletes a znode and all below it.
func remove(t testing.TB, conn *zk.Conn, path string) {
	t.Helper()
	children, _, err := conn.Children(path)
	require.NoError(t, err)
	for _, c := range children {
		remove(t, conn, path+"/"+c)
	}
	require.NoError(t, conn.Delete(path, -1))
}

func ctx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var blank = changefeed.Record{Epoch: "one / 1", Seq: 1, TTL: time.Second}

// created is a store and its record.
func created(t testing.TB, conn *zk.Conn, path string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, conn, path)
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

// requireTree compares what is in ZooKeeper at path and below.
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
