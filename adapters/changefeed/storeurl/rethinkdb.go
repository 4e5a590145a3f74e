package storeurl

import (
	"cmp"
	"context"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

func openRethinkDB(_ context.Context, a address) (*Opened, error) {
	table := a.take("table")
	if err := a.only(); err != nil {
		return nil, err
	}
	database := cmp.Or(strings.Trim(a.Path, "/"), "test")
	user, password := a.credentials()
	session, err := r.Connect(r.ConnectOpts{
		Addresses: strings.Split(a.Host, ","), Username: user, Password: password, TLSConfig: a.TLS,
		Timeout: 5 * time.Second, MaxOpen: 4,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{
		New:   func() (changefeed.Store, error) { return rethinkdb.New(session, database, table, a.Election) },
		Close: func() { _ = session.Close() },
	}, nil
}
