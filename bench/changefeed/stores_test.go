//go:build unix

package changefeed_test

// The measured stores. Each store uses a separate server, and each candidate a separate connection,
// which counts the requests to the server.

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	natsclient "github.com/nats-io/nats.go"
	redisclient "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/etcd"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/nats"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/zookeeper"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// client is a store with its connection.
type client struct {
	changefeed.Store
	requests   func() uint64 // requests returns the number of requests that were sent.
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

// backend is a kind of store. start starts a server, which runs until the benchmark ends.
type backend struct {
	name  string
	start func(b *testing.B) openFunc
}

var backends = []backend{
	{"memory", startMemory},
	{"redis", startRedis},
	{"nats", startNATS},
	{"postgres", startPostgres},
	{"etcd", startEtcd},
	{"zookeeper", startZooKeeper},
}

// counter counts the requests of a connection.
type counter struct{ n atomic.Uint64 }

func (c *counter) add() { c.n.Add(1) }

// memoryStore counts the requests to a store in memory, which has no connection.
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

// A hook counts all commands of Redis, except those of subscriptions.

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
		store, err := redis.New(conn, election)
		require.NoError(b, err)
		return client{store, count.n.Load, func() { require.NoError(b, conn.Close()) }}
	}
}

func startNATS(b *testing.B) openFunc {
	s := startServer(b, dbserver.NATS)
	return func(b *testing.B, election string) client {
		conn, err := natsclient.Connect("nats://"+s.Addr(), natsclient.MaxReconnects(-1), natsclient.IgnoreAuthErrorAbort())
		require.NoError(b, err)
		store, err := nats.New(conn, "elections", election)
		require.NoError(b, err)
		return client{store, func() uint64 { return conn.Stats().OutMsgs }, conn.Close}
	}
}

// A tracer counts the statements of PostgreSQL, also those of the connection of the feed.

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
		store, err := postgres.New(pool, pgx.Identifier{"elections"}, election, postgres.WithRisk(changefeed.RiskPowerLoss))
		require.NoError(b, err)
		return client{store, count.n.Load, pool.Close}
	}
}

func startEtcd(b *testing.B) openFunc {
	cluster := etcdserver.Start(b, etcdserver.Config{})
	return func(b *testing.B, election string) client {
		count := &counter{}
		conn, err := clientv3.New(clientv3.Config{
			Endpoints: cluster.Endpoints(), Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					count.add()
					return invoke(ctx, method, req, reply, cc, opts...)
				})},
		})
		require.NoError(b, err)
		store, err := etcd.New(conn, election)
		require.NoError(b, err)
		return client{store, count.n.Load, func() { require.NoError(b, conn.Close()) }}
	}
}

// zkConn counts the requests to ZooKeeper. The driver sends each of them by one Write.
type zkConn struct {
	net.Conn
	*counter
}

func (c zkConn) Write(p []byte) (int, error) {
	const ping = 11
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) != ping {
		c.add()
	}
	return c.Conn.Write(p)
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

func startZooKeeper(b *testing.B) openFunc {
	const sessionTimeout = 4 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: ensemble.Process, Servers: 1, TickTime: sessionTimeout / 20})
	if err != nil {
		testenv.SkipMissing(b, "Apache ZooKeeper", err)
	}
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return func(b *testing.B, election string) client {
		count := &counter{}
		conn, _, err := zk.Connect(e.Addrs(), sessionTimeout, zk.WithLogger(discardLogger{}),
			zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				c, err := net.DialTimeout(network, address, timeout)
				return zkConn{c, count}, err
			}))
		require.NoError(b, err)
		store, err := zookeeper.New(conn, "/elections/"+election)
		require.NoError(b, err)
		return client{store, count.n.Load, conn.Close}
	}
}
