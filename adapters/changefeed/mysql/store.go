package mysql

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a table. It implements [changefeed.Store]. Its feeds read the record at
// an interval, so Changes returns an error that wraps [errors.ErrUnsupported]. Its methods may be called from any
// goroutine.
type Store struct{ polled }

type polled = changefeed.Store

var _ changefeed.Store = (*Store)(nil)

// table accesses the record of a store in its table.
type table struct {
	db            *sql.DB
	schema, name  string // schema is "" for the database of the connections.
	quoted        string // quoted is the name of the table as statements contain it.
	key           string
	withoutCreate bool
	interval      time.Duration
	sql           statements
	accepted      store.AcceptedRisks
	runner        store.Runner
}

var _ store.CompareAndSet = (*table)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*table) error }

type optionFunc func(*table) error

func (f optionFunc) apply(t *table) error { return f(t) }

// WithoutCreate makes the store not create a table: Start fails if it does not exist.
// The record is created nevertheless.
func WithoutCreate() Option {
	return optionFunc(func(t *table) error {
		t.withoutCreate = true
		return nil
	})
}

// WithPoll sets the interval at which a feed reads the record, as [store.Poll] describes. The
// default is half a second, which suits the default heartbeat of one second.
func WithPoll(interval time.Duration) Option {
	return optionFunc(func(t *table) error {
		t.interval = interval
		return nil
	})
}

// WithRisk accepts servers that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts replication, and Galera without causal reads;
// [changefeed.RiskPowerLoss] accepts logs that are not on the disk when a write is acknowledged.
// Unless the deployment excludes the risk in another way, the systems that the leader writes
// to must check its fencing token. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(t *table) error { return t.accepted.Add(risks...) })
}

// WithServerNames sets the names of the servers for error messages, because a [sql.DB] does not reveal them.
func WithServerNames(names ...string) Option {
	return optionFunc(func(t *table) error { return store.SetServers(&t.runner.Suffix, names) })
}

// tableName matches the names of tables, which must not depend on the character set of the connections.
var tableName = regexp.MustCompile(`^([ -\-/-~]{1,64}\.)?[ -\-/-~]{1,64}$`)

// NewStore creates a store of the election key in a table, named as in "elections", or as in
// "app.elections" if it is not in the database of the connections. Both parts are quoted, so they may
// contain any printable ASCII characters except a dot; each has at most 64, and the key at most 255
// bytes. NewStore sends no request.
//
// db uses the driver github.com/go-sql-driver/mysql. It is neither closed nor changed, and must stay
// open as long as the store. Use a [sql.DB] that does not execute long queries: while all connections
// that SetMaxOpenConns permits are in use, requests of the store wait, and the leader can lose its
// leadership. All elections of a program can share one.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(db *sql.DB, name, key string, opts ...Option) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: the database is nil", leaderelection.ErrInvalid)
	}
	if err := store.CheckText("key", key, 255); err != nil {
		return nil, err
	}
	t := &table{db: db, key: key, interval: 500 * time.Millisecond}
	if !tableName.MatchString(name) {
		return nil, fmt.Errorf("%w: table %q: must be the name of a table, or of a database and a table with a dot between, in ASCII", leaderelection.ErrInvalid, name)
	}
	for part := range strings.SplitSeq(name, ".") {
		t.schema, t.name = t.name, part
		t.quoted = strings.TrimPrefix(t.quoted+".`"+strings.ReplaceAll(part, "`", "``")+"`", ".")
	}
	t.sql = newStatements(t.quoted)
	t.runner = store.Runner{Feeds: store.NewFeeds(t.Read, nil, 0), Prefix: "mysql: ", MeaningOf: meaningOf}
	if err := store.ApplyOptions(t, opts, Option.apply); err != nil {
		return nil, err
	}
	p, err := store.Poll(t, t.interval)
	if err != nil {
		return nil, err
	}
	return &Store{p}, nil
}

// Close implements [changefeed.Store]. The database stays open.
func (t *table) Close() error { return t.runner.Close() }
