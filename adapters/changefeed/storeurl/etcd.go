//go:build !no_etcd

package storeurl

import (
	"context"
	"crypto/tls"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/etcd"
)

func init() { openers["etcd"], openers["etcds"] = openEtcd, openEtcd }

func openEtcd(_ context.Context, a address) (*Opened, error) {
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	scheme, secure := "http", a.config.TLS
	if a.url.Scheme == "etcds" && secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if secure != nil {
		scheme = "https"
	}
	user, password := a.credentials()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: a.serverURLs(scheme), Username: user, Password: password, TLS: secure, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, DialTimeout: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return etcd.New(client, strings.TrimPrefix(path.Join(a.url.Path, a.config.Election), "/"))
		},
		Close: func() { _ = client.Close() },
	}, nil
}
