//go:build !no_nats

package storeurl

import (
	"context"
	"strings"
	"time"

	natsclient "github.com/nats-io/nats.go"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/nats"
)

func init() { openers["nats"], openers["tls"] = openNATS, openNATS }

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
