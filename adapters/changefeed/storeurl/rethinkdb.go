//go:build !no_rethinkdb

package storeurl

import (
	"cmp"
	"context"
	"net"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

func init() { openers["rethinkdb"] = openRethinkDB }

func openRethinkDB(ctx context.Context, a address) (*Opened, error) {
	table := a.takeParameter("table")
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	database := cmp.Or(strings.Trim(a.url.Path, "/"), "test")
	user, password := a.credentials()
	hosts := strings.Split(a.url.Host, ",")
	if err := checkReachable(ctx, hosts); err != nil {
		return nil, err
	}
	session, err := r.Connect(r.ConnectOpts{
		Addresses: hosts, Username: user, Password: password, TLSConfig: a.config.TLS,
		Timeout: 5 * time.Second, MaxOpen: 4,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return rethinkdb.New(session, database, table, a.config.Election, rethinkdb.WithRisk(a.risks...))
		},
		Close: func() { _ = session.Close() },
	}, nil
}

// checkReachable returns an error if no server can be reached. Each failed Connect of the driver
// leaks a goroutine, and callers that wait for a server try often.
func checkReachable(ctx context.Context, hosts []string) (err error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for _, host := range hosts {
		if _, _, split := net.SplitHostPort(host); split != nil {
			host = net.JoinHostPort(host, "28015")
		}
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", host); err == nil {
			return conn.Close()
		}
	}
	return err
}
