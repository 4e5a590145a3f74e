// Package storeurl opens stores for elections by address. It is for programs whose users configure at run time
// where an election is stored, such as the command elector. It links the drivers of all stores; programs that use
// only one store should import the package of that store. The build tags no_kubernetes, no_mongodb, no_mysql,
// no_nats, no_postgres and no_redis exclude drivers. The driver of RethinkDB, which is not maintained, is
// excluded unless the build tag rethinkdb is set. Addresses of excluded drivers are rejected.
//
//	postgres://user@host/database?table=t       any address that pgx accepts; the default table is leaderelection
//	mysql://user@host/database?table=t          also mariadb://; tls=true uses TLS
//	redis://user@host:port/0                    any address that go-redis accepts; rediss:// uses TLS
//	nats://host:port?bucket=b                   the default bucket is leaderelection; tls:// uses TLS
//	mongodb://host/database?collection=c        any address that the driver accepts, also mongodb+srv://
//	rethinkdb://user@host:port/database?table=t with the build tag rethinkdb
//	kubernetes://namespace                      a Lease, with the service account of the pod, or with ?kubeconfig=file&context=name
//	memory:                                     within this process
//
// The parameter poll, for example poll=500ms, is the interval at which the feeds of MySQL read the record.
// With this parameter, the feeds of PostgreSQL read the record as well, for connection poolers in
// transaction mode.
//
// The parameter unsafe lists risks to accept, separated by commas, for example
// redis://host?unsafe=failover,restart: see [changefeed.Risk]. All stores except memory and
// Kubernetes, which have no risks, accept the parameter.
//
// Passwords are part of the address, or are given separately in Config.Password. They are not sent
// without TLS to other machines unless Config.AllowPlainCredentials is set. For that reason, if a server
// of NATS or Redis on this machine names other servers, these are ignored, and the address of a server of
// MongoDB on this machine must contain directConnection=true.
//
// ZooKeeper and etcd have elections of their own, in package leaderelection and in
// adapters/etcd, so their addresses are rejected.
package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/transport"
)

// defaultName is the name of the table, bucket or collection if the address contains none.
const defaultName = "leaderelection"

// Config describes the store to open.
type Config struct {
	// URL is the address of the store.
	URL string
	// Election is the name of the election in the store. Leading and trailing slashes are
	// ignored.
	Election string
	// Password replaces the password in the address if it is not empty.
	Password string
	// Unsafe lists risks to accept, in addition to those in the address.
	Unsafe []changefeed.Risk
	// TLS makes all connections use TLS with this configuration. If it is nil, the scheme and the
	// parameters of the address determine whether TLS is used, with the certificate authorities
	// of the system. A parameter that permits connections without TLS, such as sslmode=prefer or
	// tls=false, contradicts TLS: Open and Check reject it.
	TLS *tls.Config
	// AllowPlainCredentials permits connections without TLS that send credentials to a server on another
	// machine. A server is on this machine if its host is localhost, a loopback address, 0.0.0.0, :: or a
	// Unix socket. By default Open and Check reject addresses that need the permission. PostgreSQL is an
	// exception: without the parameter sslmode, a password is sent with sslmode=verify-full only; with it, the
	// parameter determines whether TLS is used.
	AllowPlainCredentials bool
}

// Opener is a connection to a system that stores elections. Create it with [Open].
type Opener struct {
	newStore func() (changefeed.Store, error)
	close    func() error
}

// newOpener returns an Opener. Its Close calls closeConnection once.
func newOpener(newStore func() (changefeed.Store, error), closeConnection func() error) *Opener {
	return &Opener{newStore: newStore, close: sync.OnceValue(closeConnection)}
}

// NewStore creates a new store of the election's record. It sends no request. The caller must
// close the store before it calls Close.
func (o *Opener) NewStore() (changefeed.Store, error) { return o.newStore() }

// Close closes the connection, and returns the error of the driver. Further calls do nothing, and
// return the same error.
func (o *Opener) Close() error { return o.close() }

// driver checks an address without sending a request, and returns the function that opens it.
type driver func(a address) (connector, error)

// connector opens an address that a driver has checked.
type connector func(ctx context.Context) (*Opener, error)

// drivers contains the drivers of this build by scheme. Each file with a driver that a build tag
// can exclude adds it in init.
var drivers = map[string]driver{"memory": openMemory}

// electionPackages contains, by the schemes of their addresses, the systems that are not stores but have elections of
// their own: the values are the packages that implement these.
var electionPackages = map[string]string{
	"zookeeper": "leaderelection (elector: --backend zookeeper --zookeeper-servers host:port,...)",
	"etcd":      "leaderelection/adapters/etcd (elector: --backend etcd --etcd-endpoints host:port,...)",
	"etcds":     "leaderelection/adapters/etcd (elector: --backend etcd --etcd-endpoints https://host:port,...)",
}

// driverLogs contains one function for each driver that prints messages on standard error. The function makes the driver
// pass them to a logger.
var driverLogs []func(log *slog.Logger)

// LogDrivers passes the messages that drivers print on standard error by default to log, with level Debug:
// messages of go-redis and go-sql-driver/mysql, for example that a connection failed, of nats.go, for example
// that a permission is missing, and of client-go. The errors of requests contain the same causes. The loggers of
// go-redis, go-sql-driver/mysql and client-go are variables of the process, so only a program should call
// LogDrivers, before Open, and not a library. Other drivers print nothing.
func LogDrivers(log *slog.Logger) {
	for _, set := range driverLogs {
		set(log)
	}
}

// tagsByScheme contains the build tags that add drivers, by the scheme of their addresses.
var tagsByScheme = map[string]string{"rethinkdb": "rethinkdb"}

// Schemes returns the schemes of addresses that this build supports, without the colon, in sorted
// order.
func Schemes() []string { return slices.Sorted(maps.Keys(drivers)) }

// Check validates an address as Open does before it connects. It does not check the parameters of
// mongodb+srv addresses, which need requests to name servers. The error wraps
// [leaderelection.ErrInvalid].
func Check(cfg Config) error {
	_, _, err := prepare(cfg)
	return err
}

// prepare parses and checks the address in a Config, and returns the function that opens it.
func prepare(cfg Config) (connector, address, error) {
	open, a, err := parseAddress(cfg)
	if err != nil {
		return nil, a, err
	}
	connect, err := open(a)
	if err != nil {
		return nil, a, fmt.Errorf("%w: %s: %w", leaderelection.ErrInvalid, a.text(), err)
	}
	return connect, a, nil
}

// Redacted returns an address without its passwords and tokens, for messages. Only the values of some
// parameters that never contain a password are shown. If the text is not a valid address with a server,
// which can be because of a password that is not escaped, the result is "(address hidden)".
func Redacted(address string) string { return transport.Redact(address) }

// Open opens a connection. It depends on the driver whether Open waits for a server. Open
// returns when ctx is done; after it has returned, ctx has no effect any more. If the address
// is invalid, the error wraps [leaderelection.ErrInvalid]. If no server accepts the
// connection, or ctx is done first, it wraps [leaderelection.ErrUnreachable]. Errors never
// contain a password.
func Open(ctx context.Context, cfg Config) (*Opener, error) {
	connect, a, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	type result struct {
		opener *Opener
		err    error
	}
	results := make(chan result)
	go func() { // on a goroutine, because some drivers ignore the context while they connect
		o, err := connect(ctx)
		select {
		case results <- result{o, err}:
		case <-ctx.Done():
			if err == nil {
				_ = o.Close()
			}
		}
	}()
	var r result
	select {
	case r = <-results:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if r.err != nil {
		if dial := new(net.OpError); ctx.Err() != nil || errors.As(r.err, &dial) && dial.Op == "dial" {
			r.err = fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, r.err)
		}
		return nil, fmt.Errorf("open %s: %w", a.text(), r.err)
	}
	return r.opener, nil
}
