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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

var shared = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.NATS() }}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(shared.Tests(m))
}

// closes is longer than Close takes on a machine that is busy, which promises two seconds, and
// shorter than the library's own five.
const closes = 4 * time.Second

// cluster starts three servers, which end with the test.
func cluster(t *testing.T) []*dbserver.Server {
	t.Helper()
	all, err := dbserver.NATSCluster(3)
	if errors.Is(err, dbserver.ErrMissing) && os.Getenv("ZKTEST_REAL") != "required" {
		t.Skipf("NOT TRIED: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, s := range all {
			require.NoError(t, s.Close())
		}
	})
	// JetStream runs when the servers have found each other and chosen a leader.
	conn := connect(t, all[0].Addr())
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for patience := ctx(t); ; {
		try, cancel := context.WithTimeout(patience, time.Second)
		_, err := js.CreateKeyValue(try, jetstream.KeyValueConfig{Bucket: "first", Replicas: 3})
		cancel()
		if err == nil {
			return all
		}
		require.NoError(t, patience.Err(), "the servers do not find each other: %v", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// connect makes a connection, which ends with the test.
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

var places atomic.Int64

// place is the name of a bucket that nobody else uses.
func place() string { return fmt.Sprint("elections-", places.Add(1)) }

const key = "jobs.nightly"

func newStore(t testing.TB, conn *nats.Conn, bucket string, opts ...Option) *Store {
	t.Helper()
	s, err := New(conn, bucket, key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func ctx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func config(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// bucketOf opens a bucket past the store.
func bucketOf(t testing.TB, conn *nats.Conn, bucket string) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	kv, err := js.KeyValue(ctx(t), bucket)
	require.NoError(t, err)
	return kv
}

func dropBucket(t testing.TB, conn *nats.Conn, bucket string) {
	t.Helper()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, js.DeleteKeyValue(ctx(t), bucket))
}

// onOneServer loses its records with their bucket.
func onOneServer(t testing.TB, server *dbserver.Server) *storetest.Backend {
	bucket, operator := place(), connect(t, server.Addr())
	return &storetest.Backend{
		New:  func(t testing.TB) changefeed.Store { return newStore(t, connect(t, server.Addr()), bucket) },
		Lose: func(t testing.TB) { dropBucket(t, operator, bucket) },
		Put: func(t testing.TB, name string) {
			_, err := bucketOf(t, operator, bucket).Put(ctx(t), name, []byte("1"))
			require.NoError(t, err)
		},
		Is: func(change any, name string) bool {
			c, ok := change.(Change)
			return ok && c.Key == name && string(c.Value) == "1" && !c.Deleted && c.Revision > 0 && !c.Time.IsZero()
		},
		Restart: func(t testing.TB) {
			require.NoError(t, server.Restart())
			require.NoError(t, newStore(t, operator, bucket).Start(ctx(t))) // JetStream runs
		},
		Patience: 30 * time.Second,
	}
}

var blank = changefeed.Record{Epoch: "one", Seq: 1, TTL: time.Second}

// created is a store and its record.
func created(t testing.TB, conn *nats.Conn, bucket string) (*Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, conn, bucket)
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
