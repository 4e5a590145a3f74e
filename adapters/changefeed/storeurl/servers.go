package storeurl

// Stores of programs whose shared system is a coordination service.

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	natsclient "github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/etcd"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/nats"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/zookeeper"
)

func openMemory(_ context.Context, a address) (*Opened, error) {
	if err := a.only(); err != nil {
		return nil, err
	}
	table := memory.NewTable()
	return &Opened{
		New:   func() (changefeed.Store, error) { return table.Store(a.Election), nil },
		Close: func() {},
	}, nil
}

// zookeeperTimeout is that of the session, which only keeps the connection.
const zookeeperTimeout = 10 * time.Second

func openZooKeeper(_ context.Context, a address) (*Opened, error) {
	if a.User != nil {
		return nil, fmt.Errorf("%w: ZooKeeper takes no user in an address", leaderelection.ErrInvalidOption)
	}
	if err := a.only(); err != nil {
		return nil, err
	}
	dial := net.DialTimeout
	if a.TLS != nil {
		dial = func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, a.TLS)
		}
	}
	conn, events, err := zk.Connect(strings.Split(a.Host, ","), zookeeperTimeout,
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false), zk.WithDialer(dial))
	if err != nil {
		return nil, err
	}
	go func() { // until the connection is closed
		for range events {
		}
	}()
	return &Opened{
		New: func() (changefeed.Store, error) {
			return zookeeper.New(conn, path.Join("/", a.Path, a.Election))
		},
		Close: conn.Close,
	}, nil
}

func openEtcd(_ context.Context, a address) (*Opened, error) {
	if err := a.only(); err != nil {
		return nil, err
	}
	scheme, secure := "http://", a.TLS
	if a.Scheme == "etcds" && secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if secure != nil {
		scheme = "https://"
	}
	var endpoints []string
	for host := range strings.SplitSeq(a.Host, ",") {
		endpoints = append(endpoints, scheme+host)
	}
	user, password := a.credentials()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Username: user, Password: password, TLS: secure, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, DialTimeout: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return etcd.New(client, strings.TrimPrefix(path.Join(a.Path, a.Election), "/"))
		},
		Close: func() { _ = client.Close() },
	}, nil
}

func openNATS(_ context.Context, a address) (*Opened, error) {
	bucket := a.take("bucket")
	if err := a.only(); err != nil {
		return nil, err
	}
	options := []natsclient.Option{
		// A server that is not there yet is waited for, and so is one that refuses the password.
		natsclient.RetryOnFailedConnect(true), natsclient.MaxReconnects(-1), natsclient.IgnoreAuthErrorAbort(),
		natsclient.ReconnectWait(250 * time.Millisecond),
	}
	if user, password := a.credentials(); user != "" {
		options = append(options, natsclient.UserInfo(user, password))
	}
	if a.TLS != nil {
		options = append(options, natsclient.Secure(a.TLS))
	}
	var servers []string
	for host := range strings.SplitSeq(a.Host, ",") {
		servers = append(servers, a.Scheme+"://"+host)
	}
	conn, err := natsclient.Connect(strings.Join(servers, ","), options...)
	if err != nil {
		return nil, err
	}
	return &Opened{
		New:   func() (changefeed.Store, error) { return nats.New(conn, bucket, a.Election, nats.WithRisk(a.risks...)) },
		Close: conn.Close,
	}, nil
}
