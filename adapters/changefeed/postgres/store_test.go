//go:build unix

package postgres_test

import (
	"context"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore(t *testing.T) { storetest.Run(t, backendOn(shared.Get, nil)) }

// TestStoreElsewise: pools of other kinds make no difference.
func TestStoreElsewise(t *testing.T) {
	for name, change := range map[string]func(*pgxpool.Config){
		"Serializable":   setting("default_transaction_isolation", "serializable"),
		"RepeatableRead": setting("default_transaction_isolation", "repeatable read"),
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				switch c.Name {
				case "CreateConcurrently", "ConcurrentHeartbeats", "AllFields", "CompareAndSet", "FeedLastWrite", "DeletedRecord":
					t.Run(c.Name, func(t *testing.T) { c.Run(t, backendOn(shared.Get, change)) })
				}
			}
		})
	}
}

// TestElections plays two cases at a time, and so the one that kills its server has one
// of its own.
func TestElections(t *testing.T) {
	own := func(t testing.TB) *dbserver.Server {
		shared.Get(t) // it is installed
		server, err := dbserver.Postgres()
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

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts, also if the server was killed in between.
func TestPartitions(t *testing.T) {
	server, table := shared.Get(t), newTable()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, newPool(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, func() { require.NoError(t, server.Restart()) })
}

// TestArguments: what cannot be used is refused by New.
func TestArguments(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	good := pgx.Identifier{"elections"}
	for name, try := range map[string]func() (*postgres.Store, error){
		"NilPool":    func() (*postgres.Store, error) { return postgres.New(nil, good, "k") },
		"NoTable":    func() (*postgres.Store, error) { return postgres.New(pool, nil, "k") },
		"EmptyTable": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{""}, "k") },
		"ThreeParts": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{"a", "b", "c"}, "k") },
		"NulInTable": func() (*postgres.Store, error) { return postgres.New(pool, pgx.Identifier{"a\x00b"}, "k") },
		"LongTable": func() (*postgres.Store, error) {
			return postgres.New(pool, pgx.Identifier{strings.Repeat("x", 64)}, "k")
		},
		"EmptyKey":      func() (*postgres.Store, error) { return postgres.New(pool, good, "") },
		"NulInKey":      func() (*postgres.Store, error) { return postgres.New(pool, good, "\x00") },
		"NilOption":     func() (*postgres.Store, error) { return postgres.New(pool, good, "k", nil) },
		"QuietTooShort": func() (*postgres.Store, error) { return postgres.New(pool, good, "k", postgres.WithQuiet(0)) },
		"EmptyChannel":  func() (*postgres.Store, error) { return postgres.New(pool, good, "k", postgres.WithChannel("")) },
	} {
		_, err := try()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
	}
}

// TestThePoolIsTheCallers: feeds take none of its connections, and it outlives the store.
func TestThePoolIsTheCallers(t *testing.T) {
	var made atomic.Int64
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.AfterConnect = func(context.Context, *pgx.Conn) error { made.Add(1); return nil }
	})
	s, r := created(t, pool, newTable())
	before := made.Load()
	for range 3 {
		tells(t, subscribe(t, s), "the record", version(r.Version))
	}
	require.EqualValues(t, 3, made.Load()-before, "AfterConnect has seen the connections of feeds")
	beat(t, s, r)
	require.Zero(t, pool.Stat().AcquiredConns())
	require.NoError(t, s.Close())
	require.NoError(t, pool.Ping(bounded(t)))
}

// TestTrapHalfOpen: a connection that is dead without a word is found by its feed, calls
// return with their contexts, Close in time, and everything works again afterwards.
func TestTrapHalfOpen(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	table := newTable()
	s, r := created(t, newPool(t, proxy.Addr(), nil), table, postgres.WithQuiet(2*time.Second))
	other := newStore(t, newPool(t, server.Addr(), nil), table)
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	changes, err := s.Changes(bounded(t), "")
	require.NoError(t, err)
	defer changes.Close()
	proxy.Cut()
	t.Cleanup(proxy.Heal)
	r = beat(t, other, r)

	begin := time.Now()
	for name, next := range map[string]func() error{
		"the feed":      func() error { _, err := f.Next(bounded(t)); return err },
		"other changes": func() error { _, err := changes.Next(bounded(t)); return err },
	} {
		err := next()
		require.Error(t, err, name)
		require.NoError(t, bounded(t).Err(), name)
	}
	require.Less(t, time.Since(begin), patience/2, "it takes the quiet time of 2 s twice, and not until the test's patience")

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begin = time.Now()
	_, err = s.Heartbeat(ctx, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Subscribe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), closes)

	blocked := newStore(t, newPool(t, proxy.Addr(), nil), table)
	result := make(chan error, 1)
	go func() { _, err := blocked.Read(context.Background()); result <- err }()
	begin = time.Now()
	require.NoError(t, blocked.Close())
	require.ErrorIs(t, <-result, changefeed.ErrClosed)
	require.Less(t, time.Since(begin), closes)

	proxy.Heal()
	r, err = other.Read(bounded(t))
	require.NoError(t, err)
	tells(t, subscribe(t, s), "what was missed", version(r.Version))
}

// TestDependencies: a program that imports this store links no driver of another.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "github.com/jackc/pgx/v5\n")
	for _, other := range []string{"redis", "etcd", "nats-io", "mongo", "rethinkdb", "testify"} {
		require.NotContains(t, string(out), other)
	}
}
