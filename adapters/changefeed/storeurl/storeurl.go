// Package storeurl opens stores for elections by address. It is for programs whose users
// configure at run time where an election is stored, such as the command elector. It
// links the drivers of all stores; programs that use only one store should import the
// package of that store. The build tags no_etcd, no_mongodb, no_nats,
// no_postgres, no_redis and no_rethinkdb exclude drivers; their addresses are then rejected.
//
//	zookeeper://host:port,host:port/path        the election's znode is below path
//	etcd://host:port,host:port                  etcds:// uses TLS
//	postgres://user@host/database?table=t       any address that pgx accepts; the default table is leaderelection
//	redis://user@host:port/0                    any address that go-redis accepts; rediss:// uses TLS
//	nats://host:port?bucket=b                   the default bucket is leaderelection; tls:// uses TLS
//	mongodb://host/database?collection=c        any address that the driver accepts, also mongodb+srv://
//	rethinkdb://user@host:port/database?table=t
//	memory:                                     within this process
//
// The parameter unsafe lists risks to accept, separated by commas, for example
// redis://host?unsafe=failover,restart: see [changefeed.Risk]. It applies to the stores
// whose Start rejects deployments with such risks: PostgreSQL, Redis, NATS, RethinkDB and
// MongoDB.
//
// Passwords are part of the address, or are given separately in Config.Password.
// Addresses of ZooKeeper cannot contain credentials: a program that needs them must
// create the connection and use package zookeeper.
package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// defaultPlace names the table, bucket or collection where an address names none.
const defaultPlace = "leaderelection"

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
	// TLS makes all connections use TLS with this configuration. If it is nil, the scheme
	// of the address determines whether TLS is used, with the certificate authorities of
	// the system.
	TLS *tls.Config
}

// Opened is a connection to a system that stores elections.
type Opened struct {
	// New creates a new store of the election's record. It sends no request. The caller
	// must close the store before it calls Close.
	New func() (changefeed.Store, error)
	// Close closes the connection. It must be called at most once.
	Close func()
}

// address is a Config whose URL was understood.
type address struct {
	*Config
	*url.URL
	query url.Values // what is the driver's
	risks []changefeed.Risk
}

// opener opens what has a scheme.
type opener func(ctx context.Context, a address) (*Opened, error)

// openers are those of this build by scheme. Each file with a driver that a build tag excludes
// adds its own with init.
var openers = map[string]opener{
	"memory":    openMemory,
	"zookeeper": openZooKeeper,
}

// Schemes returns the schemes of addresses that this build supports, without the colon, in sorted order.
func Schemes() []string { return slices.Sorted(maps.Keys(openers)) }

// Check validates an address as Open does before it connects. It does not check
// parameters that only a driver knows. The error wraps [leaderelection.ErrInvalidOption].
func Check(cfg Config) error {
	_, _, err := parse(cfg)
	return err
}

// Redacted returns an address without its password, for messages. If the text is not a
// valid address, it returns the part before the colon.
func Redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		scheme, _, _ := strings.Cut(address, ":")
		return scheme + ":"
	}
	return u.Redacted()
}

// Open opens a connection. It depends on the driver whether Open waits for a server. It
// does not wait after ctx is done; ctx does not matter after Open has returned. If the
// address is invalid, the error wraps [leaderelection.ErrInvalidOption]. Errors never
// contain a password.
func Open(ctx context.Context, cfg Config) (*Opened, error) {
	open, a, err := parse(cfg)
	if err != nil {
		return nil, err
	}
	o, err := open(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a.Redacted(), err)
	}
	return o, nil
}

func parse(cfg Config) (open opener, a address, err error) {
	cfg.Election = strings.Trim(cfg.Election, "/")
	u, err := url.Parse(cfg.URL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the address, which can have a password
		}
		return nil, a, fmt.Errorf("%w: address of the store: %w", leaderelection.ErrInvalidOption, err)
	}
	open = openers[u.Scheme]
	switch {
	case open == nil:
		return nil, a, fmt.Errorf("%w: address of the store: unknown scheme %q: expected one of %s", leaderelection.ErrInvalidOption, u.Scheme+":", strings.Join(Schemes(), ", "))
	case cfg.Election == "":
		return nil, a, fmt.Errorf("%w: the name of the election is empty", leaderelection.ErrInvalidOption)
	case u.Scheme != "memory" && u.Host == "":
		return nil, a, fmt.Errorf("%w: address of the store: no server: expected %s://host", leaderelection.ErrInvalidOption, u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, a, fmt.Errorf("%w: address of the store: port %s is not a number from 1 to 65535", leaderelection.ErrInvalidOption, port)
		}
	}
	if cfg.Password != "" {
		u.User = url.UserPassword(u.User.Username(), cfg.Password)
	}
	a = address{Config: &cfg, URL: u, query: u.Query()}
	if a.risks, err = a.takeRisks(); err != nil {
		return nil, a, fmt.Errorf("accepted risks: %w", err)
	}
	return open, a, nil
}

// take returns a parameter that is not for the driver.
func (a *address) take(name string) string {
	value := a.query.Get(name)
	a.query.Del(name)
	if value == "" {
		return defaultPlace
	}
	return value
}

// unsafe is the parameter that names risks.
const unsafe = "unsafe"

// withoutRisks are the schemes of stores that refuse no deployment for a risk.
var withoutRisks = []string{"memory", "zookeeper", "etcd", "etcds"}

// takeRisks returns the accepted risks.
func (a *address) takeRisks() ([]changefeed.Risk, error) {
	risks := slices.Clone(a.Unsafe)
	for _, value := range a.query[unsafe] {
		for name := range strings.SplitSeq(value, ",") {
			r, err := changefeed.ParseRisk(name)
			if err != nil {
				return nil, err
			}
			risks = append(risks, r)
		}
	}
	a.query.Del(unsafe)
	if len(risks) > 0 && slices.Contains(withoutRisks, a.Scheme) {
		return nil, fmt.Errorf("%w: stores on %s have no risks to accept", leaderelection.ErrInvalidOption, a.Scheme)
	}
	for _, r := range risks {
		if _, err := changefeed.ParseRisk(string(r)); err != nil {
			return nil, err
		}
	}
	return risks, nil
}

// rest is the address without what was taken.
func (a *address) rest() string {
	u := *a.URL
	u.RawQuery = a.query.Encode()
	return u.String()
}

// only refuses parameters that nobody would look at.
func (a *address) only() error {
	for name := range a.query {
		return fmt.Errorf("%w: unknown parameter %q", leaderelection.ErrInvalidOption, name)
	}
	return nil
}

// credentials are those in the address.
func (a *address) credentials() (user, password string) {
	password, _ = a.User.Password()
	return a.User.Username(), password
}
