//go:build unix

package changefeed_test

// This file contains the stores that the benchmarks measure. Each store has its own server, and each candidate its
// own connection, which counts the requests to the server.

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	natsclient "github.com/nats-io/nats.go"
	redisclient "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/nats"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// client is a store of one candidate, with the store's connection.
type client struct {
	changefeed.Store
	requests   func() uint64 // returns the number of requests that the connection has sent
	disconnect func()
}

// close closes the store and the connection.
func (c client) close(b *testing.B) {
	b.Helper()
	require.NoError(b, c.Close())
	c.disconnect()
}

// openFunc connects a client of an election. The caller must close it.
type openFunc func(b *testing.B, election string) client

// backend is a kind of store, such as Redis. start starts its server, which runs until the benchmark ends.
type backend struct {
	name  string
	start func(b *testing.B) openFunc
}

var backends = []backend{
	{"memory", startMemory},
	{"redis", startRedis},
	{"nats", startNATS},
	{"postgres", startPostgres},
}

// counter counts the requests of a connection.
type counter struct{ n atomic.Uint64 }

func (c *counter) add() { c.n.Add(1) }

// memoryStore counts the calls of a store in memory, because it has no connection whose requests could be counted.
type memoryStore struct {
	changefeed.Store
	counter
}

func (s *memoryStore) Read(ctx context.Context) (changefeed.Record, error) {
	s.add()
	return s.Store.Read(ctx)
}

func (s *memoryStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	s.add()
	return s.Store.Heartbeat(ctx, prev, next)
}

func startMemory(*testing.B) openFunc {
	table := memory.NewTable()
	return func(_ *testing.B, election string) client {
		s := &memoryStore{Store: table.Store(election)}
		return client{s, s.n.Load, func() {}}
	}
}

// startServer starts a server of package dbserver until the benchmark ends.
func startServer(b *testing.B, start func(args ...string) (*dbserver.Server, error)) *dbserver.Server {
	b.Helper()
	return dbserver.StartServer(b, func() (*dbserver.Server, error) { return start() })
}

// The following methods implement a hook of the Redis client that counts all commands, except those of
// subscriptions.

func (c *counter) DialHook(next redisclient.DialHook) redisclient.DialHook { return next }

func (c *counter) ProcessHook(next redisclient.ProcessHook) redisclient.ProcessHook {
	return func(ctx context.Context, cmd redisclient.Cmder) error {
		c.add()
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redisclient.ProcessPipelineHook) redisclient.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redisclient.Cmder) error {
		c.n.Add(uint64(len(cmds)))
		return next(ctx, cmds)
	}
}

func startRedis(b *testing.B) openFunc {
	s := startServer(b, dbserver.Redis)
	return func(b *testing.B, election string) client {
		conn, count := redisclient.NewClient(&redisclient.Options{Addr: s.Addr()}), &counter{}
		conn.AddHook(count)
		store, err := redis.NewStore(conn, election)
		require.NoError(b, err)
		return client{store, count.n.Load, func() { require.NoError(b, conn.Close()) }}
	}
}

func startNATS(b *testing.B) openFunc {
	s := startServer(b, dbserver.NATS)
	return func(b *testing.B, election string) client {
		conn, err := natsclient.Connect("nats://"+s.Addr(), natsclient.MaxReconnects(-1), natsclient.IgnoreAuthErrorAbort())
		require.NoError(b, err)
		store, err := nats.NewStore(conn, "elections", election)
		require.NoError(b, err)
		return client{store, func() uint64 { return conn.Stats().OutMsgs }, conn.Close}
	}
}

// The following methods implement a tracer of the PostgreSQL client that counts all statements,
// including those on the connection of the feed.

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.add()
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func startPostgres(b *testing.B) openFunc {
	s := startServer(b, dbserver.Postgres)
	return func(b *testing.B, election string) client {
		config, err := pgxpool.ParseConfig("postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable")
		require.NoError(b, err)
		count := &counter{}
		config.ConnConfig.Tracer = count
		config.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		require.NoError(b, err)
		store, err := postgres.NewStore(pool, pgx.Identifier{"elections"}, election, postgres.WithRisk(changefeed.RiskPowerLoss))
		require.NoError(b, err)
		return client{store, count.n.Load, pool.Close}
	}
}
