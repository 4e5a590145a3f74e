package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// connection is the connection of one candidate to etcd.
type connection struct {
	client  *clientv3.Client
	network *network
}

func (c *connection) close() { _ = c.client.Close() }

// joinEtcd adds a candidate with the given name to the election on etcd. Each implementation of elections has its own
// function.
type joinEtcd func(c *connection, name string) (*candidate, error)

// onEtcd starts an etcd server in this process. Every candidate uses a separate connection.
func onEtcd(join joinEtcd) systemStarter {
	return func(ctx context.Context) (candidateJoiner, func(), error) {
		dir, err := os.MkdirTemp("", "systems-etcd-")
		if err != nil {
			return nil, nil, err
		}
		server, err := startEtcd(ctx, dir)
		if err != nil {
			_ = os.RemoveAll(dir)
			return nil, nil, err
		}
		connectAndJoin := func(name string) (*candidate, error) {
			c, err := connect(server.Clients[0].Addr().String())
			if err != nil {
				return nil, err
			}
			joined, err := join(c, name)
			if err != nil {
				c.close()
			}
			return joined, err
		}
		return connectAndJoin, func() { server.Close(); _ = os.RemoveAll(dir) }, nil
	}
}

func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync = dir, true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback, loopback
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback, loopback
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	server.Close()
	return nil, fmt.Errorf("etcd is not ready: %w", err)
}

func connect(address string) (*connection, error) {
	n := new(network)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return n.DialContext(ctx, "tcp", address)
		})},
	})
	return &connection{client, n}, err
}

// concurrencyOnEtcd joins the election with etcd's package concurrency.
func concurrencyOnEtcd(timeout time.Duration) joinEtcd {
	return func(c *connection, name string) (*candidate, error) {
		session, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(timeout/time.Second)))
		if err != nil {
			return nil, err
		}
		e := concurrency.NewElection(session, "/election")
		ctx, cancel := context.WithCancel(context.Background())
		joined := &candidate{leads: make(chan time.Time, 1), crash: c.network.crash}
		returned := make(chan error, 1)
		go func() {
			err := e.Campaign(ctx, name)
			if err == nil {
				joined.leads <- time.Now()
			}
			returned <- err
		}()
		joined.resign = func() error { return errors.Join(e.Resign(ctx), session.Close()) }
		joined.close = func() {
			cancel()
			<-returned
			session.Orphan()
			c.close()
		}
		return joined, nil
	}
}
