//go:build unix

package changefeed_test

// The stores that are measured, each on a server of its own. Every candidate has a
// connection of its own, which counts what it asks the server for.

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
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
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// client is a store and the connection below it.
type client struct {
	changefeed.Store
	requests func() uint64 // how many were sent so far
	hangUp   func()
}

func (c client) end(b *testing.B) {
	b.Helper()
	require.NoError(b, c.Close())
	c.hangUp()
}

// opener makes a client of the election that is named, which is the caller's to end.
type opener func(b *testing.B, election string) client

// backend is a system that keeps elections; start runs a server until the benchmark ends.
type backend struct {
	name  string
	start func(b *testing.B) opener
}

var backends = []backend{
	{"memory", startMemory},
	{"redis", startRedis},
	{"nats", startNATS},
	{"postgres", startPostgres},
	{"etcd", startEtcd},
	{"zookeeper", startZooKeeper},
}

// counter is how many requests a connection has sent.
type counter struct{ n atomic.Uint64 }

func (c *counter) add() { c.n.Add(1) }

// asked counts what is asked of a store in memory: there is nothing below it.
type asked struct {
	changefeed.Store
	counter
}

func (a *asked) Read(ctx context.Context) (changefeed.Record, error) {
	a.add()
	return a.Store.Read(ctx)
}

func (a *asked) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	a.add()
	return a.Store.Heartbeat(ctx, prev, next)
}

func startMemory(*testing.B) opener {
	table := memory.NewTable()
	return func(_ *testing.B, election string) client {
		s := &asked{Store: table.Store(election)}
		return client{s, s.n.Load, func() {}}
	}
}

// server runs one of internal/testenv/dbserver.
func server(b *testing.B, start func(args ...string) (*dbserver.Server, error)) *dbserver.Server {
	b.Helper()
	s, err := start()
	if errors.Is(err, dbserver.ErrMissing) && os.Getenv("ZKTEST_REAL") != "required" {
		b.Skipf("NOT TRIED: %v", err)
	}
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// Commands are counted by a hook: all but those of subscriptions.

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

func startRedis(b *testing.B) opener {
	s := server(b, dbserver.Redis)
	return func(b *testing.B, election string) client {
		conn, count := redisclient.NewClient(&redisclient.Options{Addr: s.Addr()}), &counter{}
		conn.AddHook(count)
		store, err := redis.New(conn, election)
		require.NoError(b, err)
		return client{store, count.n.Load, func() { require.NoError(b, conn.Close()) }}
	}
}

func startNATS(b *testing.B) opener {
	s := server(b, dbserver.NATS)
	return func(b *testing.B, election string) client {
		conn, err := natsclient.Connect("nats://"+s.Addr(), natsclient.MaxReconnects(-1), natsclient.IgnoreAuthErrorAbort())
		require.NoError(b, err)
		store, err := nats.New(conn, "elections", election)
		require.NoError(b, err)
		return client{store, func() uint64 { return conn.Stats().OutMsgs }, conn.Close}
	}
}

// Statements are counted by a tracer, those of the feed's connection too.

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.add()
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func startPostgres(b *testing.B) opener {
	s := server(b, dbserver.Postgres)
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

func startEtcd(b *testing.B) opener {
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

// zkConn counts requests: the driver writes one at a time.
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

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func startZooKeeper(b *testing.B) opener {
	const sessionTimeout = 4 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: ensemble.Process, Servers: 1, TickTime: sessionTimeout / 20})
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			b.Fatalf("no Apache ZooKeeper to measure: %v", err)
		}
		b.Skipf("NOT TRIED with Apache ZooKeeper: %v", err)
	}
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return func(b *testing.B, election string) client {
		count := &counter{}
		conn, _, err := zk.Connect(e.Addrs(), sessionTimeout, zk.WithLogger(quiet{}),
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
