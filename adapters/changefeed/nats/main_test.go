package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// shared is the server of most tests.
var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.NATS() }}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(shared.Tests(m))
}

// closeLimit is how long Close may take in tests. It must return within two seconds; the limit allows for a busy
// machine, but is shorter than the five seconds for which the client library can block.
const closeLimit = 4 * time.Second

// startServer starts a server until the test ends. It skips the test if NATS is not installed.
func startServer(t testing.TB, args ...string) *dbserver.Server {
	t.Helper()
	return dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.NATS(args...) })
}

// startCluster starts three servers until the test ends. They have a replicated bucket with the
// name "first".
func startCluster(t *testing.T) []*dbserver.Server {
	t.Helper()
	all, err := dbserver.NATSCluster(3)
	if errors.Is(err, dbserver.ErrMissing) {
		testenv.SkipMissing(t, "a cluster of NATS", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, s := range all {
			require.NoError(t, s.Close())
		}
	})
	// Wait until the servers have connected to each other and elected a leader: then JetStream is
	// available.
	conn := connect(t, all[0].Addr())
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for limit := fixture.Context(t); ; {
		attempt, cancel := context.WithTimeout(limit, time.Second)
		_, err := js.CreateKeyValue(attempt, jetstream.KeyValueConfig{Bucket: "first", Replicas: 3})
		cancel()
		if err == nil {
			return all
		}
		require.NoError(t, limit.Err(), "JetStream is not available: %v", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// connect returns a connection that is closed when the test ends.
func connect(t testing.TB, addr string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect("nats://"+addr, append([]nats.Option{
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

var lastBucket atomic.Int64

// newBucket returns the name of a bucket that no other test uses.
func newBucket() string { return fmt.Sprint("elections-", lastBucket.Add(1)) }

const key = "jobs.nightly"

func newStore(t testing.TB, conn *nats.Conn, bucket string, opts ...Option) *Store {
	t.Helper()
	s, err := NewStore(conn, bucket, key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// writeConfig writes a configuration file for a server, and returns its name.
func writeConfig(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// openKV opens a bucket as a program does that does not use a Store.
func openKV(t testing.TB, conn *nats.Conn, bucket string) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	kv, err := js.KeyValue(fixture.Context(t), bucket)
	require.NoError(t, err)
	return kv
}

func deleteBucket(t testing.TB, conn *nats.Conn, bucket string) {
	t.Helper()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, js.DeleteKeyValue(fixture.Context(t), bucket))
}

// newBackend returns a backend on a server. It deletes the record together with its bucket.
func newBackend(t testing.TB, server *dbserver.Server) *storetest.Backend {
	bucket, operator := newBucket(), connect(t, server.Addr())
	return &storetest.Backend{
		New:  func(t testing.TB) changefeed.Store { return newStore(t, connect(t, server.Addr()), bucket) },
		Lose: func(t testing.TB) { deleteBucket(t, operator, bucket) },
		Put: func(t testing.TB, name string) {
			_, err := openKV(t, operator, bucket).Put(fixture.Context(t), name, []byte("1"))
			require.NoError(t, err)
		},
		Is: func(change any, name string) bool {
			c, ok := change.(Change)
			return ok && c.Key == name && string(c.Value) == "1" && !c.Deleted && c.Revision > 0 && !c.Time.IsZero()
		},
		Restart: func(t testing.TB) {
			require.NoError(t, server.Restart())
			// Start returns when JetStream is available.
			require.NoError(t, newStore(t, operator, bucket).Start(fixture.Context(t)))
		},
		Patience: fixture.Patience,
	}
}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, conn *nats.Conn, bucket string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, conn, bucket)
	return s, fixture.CreateRecord(t, s)
}
