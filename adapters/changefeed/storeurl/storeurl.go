// Package storeurl opens stores for elections by address, for programs whose users say at
// run time where an election is kept: the command elector and the examples. It links the
// drivers of all stores; a program that knows its store imports that store's package.
//
//	zookeeper://host:port,host:port/path        the election's znode is below path
//	etcd://host:port,host:port                  etcds:// by TLS
//	postgres://user@host/database?table=t       whatever pgx takes; the default table is leaderelection
//	redis://user@host:port/0                    whatever go-redis takes; rediss:// by TLS
//	nats://host:port?bucket=b                   the default bucket is leaderelection; tls:// by TLS
//	mongodb://host/database?collection=c        whatever the driver takes; mongodb+srv:// too
//	rethinkdb://user@host:port/database?table=t
//	memory:                                     within this process
//
// A parameter unsafe names risks that are accepted, separated by commas, as in
// redis://host?unsafe=failover,restart: see [changefeed.Risk]. It is for the stores whose
// Start refuses deployments with such risks: PostgreSQL, Redis, NATS, RethinkDB and MongoDB.
//
// Passwords stand in the address, or come separately ([Config.Password]). ZooKeeper takes
// none here: a program with credentials makes its own connection.
package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// defaultPlace names the table, bucket or collection where an address names none.
const defaultPlace = "leaderelection"

// Config is what to open.
type Config struct {
	// URL is the address.
	URL string
	// Election names the election in the store. Slashes at its ends do not count.
	Election string
	// Password takes the place of the one in the address, if it is not empty.
	Password string
	// Unsafe are risks that are accepted, beside those that the address names.
	Unsafe []changefeed.Risk
	// TLS has all servers spoken to by TLS, with its certificates. Where it is nil the
	// address says, as above, whether it is TLS, with the system's authorities.
	TLS *tls.Config
}

// Opened is a connection to what keeps elections.
type Opened struct {
	// New makes a store of the election's record, each time another. It sends nothing.
	// The store is the caller's, to be closed before Close is called.
	New func() (changefeed.Store, error)
	// Close ends the connection. It may be called once.
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

var openers = map[string]opener{
	"memory":      openMemory,
	"zookeeper":   openZooKeeper,
	"etcd":        openEtcd,
	"etcds":       openEtcd,
	"postgres":    openPostgres,
	"postgresql":  openPostgres,
	"redis":       openRedis,
	"rediss":      openRedis,
	"mongodb":     openMongoDB,
	"mongodb+srv": openMongoDB,
	"rethinkdb":   openRethinkDB,
	"nats":        openNATS,
	"tls":         openNATS,
}

// Schemes lists what an address can begin with, without the colon, in order.
func Schemes() []string { return slices.Sorted(maps.Keys(openers)) }

// Check reports what is wrong with an address, as Open does before it connects, except
// parameters that only a driver knows. The error wraps [leaderelection.ErrInvalidOption].
func Check(cfg Config) error {
	_, _, err := parse(cfg)
	return err
}

// Redacted returns an address without its password, for messages. Of a text that is no
// address it returns the part before the colon.
func Redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		scheme, _, _ := strings.Cut(address, ":")
		return scheme + ":"
	}
	return u.Redacted()
}

// Open opens a connection. Whether it waits for a server depends on the driver; it does
// not wait longer than ctx, which does not matter afterwards. What is wrong with the
// address is an error that wraps [leaderelection.ErrInvalidOption]; no error has a
// password in it.
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
		return nil, a, fmt.Errorf("%w: the store's address: %w", leaderelection.ErrInvalidOption, err)
	}
	open = openers[u.Scheme]
	switch {
	case open == nil:
		return nil, a, fmt.Errorf("%w: the store's address begins with %q: known are %s", leaderelection.ErrInvalidOption, u.Scheme+":", strings.Join(Schemes(), ", "))
	case cfg.Election == "":
		return nil, a, fmt.Errorf("%w: the election has no name", leaderelection.ErrInvalidOption)
	case u.Scheme != "memory" && u.Host == "":
		return nil, a, fmt.Errorf("%w: the store's address names no server: %s://host", leaderelection.ErrInvalidOption, u.Scheme)
	}
	if cfg.Password != "" {
		u.User = url.UserPassword(u.User.Username(), cfg.Password)
	}
	a = address{Config: &cfg, URL: u, query: u.Query()}
	if a.risks, err = a.takeRisks(); err != nil {
		return nil, a, fmt.Errorf("the accepted risks: %w", err)
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
		return nil, fmt.Errorf("%w: a store on %s: refuses no deployment for a risk, so there is none to accept", leaderelection.ErrInvalidOption, a.Scheme)
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
