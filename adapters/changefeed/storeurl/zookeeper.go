package storeurl

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

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/zookeeper"
)

// zookeeperTimeout is the session timeout. The store uses no ephemeral znodes, so it matters only
// for the connection.
const zookeeperTimeout = 10 * time.Second

func openZooKeeper(_ context.Context, a address) (*Opened, error) {
	if a.url.User != nil {
		return nil, fmt.Errorf("%w: address of the store: ZooKeeper addresses cannot contain credentials", leaderelection.ErrInvalidOption)
	}
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	dial := net.DialTimeout
	if a.config.TLS != nil {
		dial = func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, a.config.TLS)
		}
	}
	conn, events, err := zk.Connect(strings.Split(a.url.Host, ","), zookeeperTimeout,
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false), zk.WithDialer(dial))
	if err != nil {
		return nil, err
	}
	go func() { // returns when the connection is closed
		for range events {
		}
	}()
	return &Opened{
		New: func() (changefeed.Store, error) {
			return zookeeper.New(conn, path.Join("/", a.url.Path, a.config.Election))
		},
		Close: conn.Close,
	}, nil
}
