//go:build !no_nats

package storeurl

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	natsclient "github.com/nats-io/nats.go"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/nats"
)

func init() {
	drivers["nats"], drivers["tls"] = openNATS, openNATS
	driverLogs = append(driverLogs, natsLog.Store)
}

// natsLog is the logger that LogDrivers has set, or nil. A connection uses the logger that is set when the connection is opened.
var natsLog atomic.Pointer[slog.Logger]

func openNATS(a address) (connector, error) {
	bucket := a.takeParameter("bucket")
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	options := []natsclient.Option{
		// With these options, the client waits for a server that is not running, or that rejects the
		// credentials.
		natsclient.RetryOnFailedConnect(true), natsclient.MaxReconnects(-1), natsclient.IgnoreAuthErrorAbort(),
		natsclient.ReconnectWait(250 * time.Millisecond),
	}
	user, password := a.credentials()
	switch _, isUser := a.url.User.Password(); {
	case isUser:
		options = append(options, natsclient.UserInfo(user, password))
	case user != "":
		// In a URL, the client takes a user without a password as a token, too.
		options = append(options, natsclient.Token(user))
	}
	login := a.newLogin("NATS", "password or token", user+password != "", a.url.Scheme == "tls")
	if err := login.Check(); err != nil {
		return nil, err
	}
	if login.OnlyLocal() {
		options = append(options, natsclient.IgnoreDiscoveredServers())
	}
	if log := natsLog.Load(); log != nil {
		options = append(options, natsclient.ErrorHandler(func(_ *natsclient.Conn, _ *natsclient.Subscription, err error) {
			log.Debug("nats: " + err.Error())
		}))
	}
	if a.config.TLS != nil {
		options = append(options, natsclient.Secure(a.config.TLS))
	}
	return func(context.Context) (*Opener, error) {
		conn, err := natsclient.Connect(strings.Join(a.serverURLs(a.url.Scheme), ","), options...)
		if err != nil {
			return nil, err
		}
		return newOpener(func() (changefeed.Store, error) {
			return nats.NewStore(conn, bucket, a.config.Election, nats.WithRisk(a.risks...))
		}, func() error { conn.Close(); return nil }), nil
	}, nil
}
