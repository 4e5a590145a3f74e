//go:build rethinkdb

package storeurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/transport"
)

func init() { drivers["rethinkdb"] = openRethinkDB }

func openRethinkDB(a address) (connector, error) {
	table := a.takeParameter("table")
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	database := cmp.Or(strings.Trim(a.url.Path, "/"), "test")
	user, password := a.credentials()
	if err := a.newLogin("RethinkDB", "password", password != "", false).Check(); err != nil {
		return nil, err
	}
	hosts := strings.Split(a.url.Host, ",")
	return func(ctx context.Context) (*Opener, error) {
		if err := checkServers(ctx, hosts, a.config.TLS); err != nil {
			return nil, err
		}
		session, err := r.Connect(r.ConnectOpts{
			Addresses: hosts, Username: user, Password: password, TLSConfig: a.config.TLS,
			Timeout: 5 * time.Second, MaxOpen: 4,
		})
		if err != nil {
			return nil, err
		}
		return newOpener(func() (changefeed.Store, error) {
			return rethinkdb.NewStore(session, database, table, a.config.Election, rethinkdb.WithRisk(a.risks...), rethinkdb.WithServerNames(a.url.Host))
		}, func() error { return session.Close() }), nil
	}, nil
}

// checkServers returns an error if no server answers. It is called before Connect of the driver, because each Connect
// that fails leaks a goroutine, with its connection if the server accepts it but does not answer. Callers that wait for
// a server would try often.
func checkServers(ctx context.Context, hosts []string, config *tls.Config) (err error) {
	for _, host := range hosts {
		if _, _, split := net.SplitHostPort(host); split != nil {
			host = net.JoinHostPort(host, "28015")
		}
		if err = checkServer(ctx, host, config); err == nil {
			return nil
		}
	}
	return err
}

// checkServer returns an error unless the server at address answers the beginning of a handshake.
func checkServer(ctx context.Context, address string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer plain.Close()
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Now()) })
	defer stop()
	conn := plain
	if config != nil {
		host, _, _ := net.SplitHostPort(address)
		conn = tls.Client(plain, transport.ForServer(config, host))
	}
	_, err = conn.Write([]byte{0xc3, 0xbd, 0xc2, 0x34}) // the version of the protocol
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("%s does not answer as RethinkDB does: %w", address, cmp.Or(context.Cause(ctx), err))
	}
	return nil
}
