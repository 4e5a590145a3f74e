package rethinkdb

import (
	"fmt"
	"reflect"
	"regexp"
	"sync/atomic"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a table. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	session       r.QueryExecutor
	database      string
	table         string
	key           string
	withoutCreate bool
	quiet         time.Duration
	accepted      store.AcceptedRisks
	runner        store.Runner
	servers       string // servers names the servers at the end of each error message, or is "".

	missing atomic.Bool   // missing reports whether the table did not exist when a watch last began.
	queries chan struct{} // queries contains a token for each query in progress.
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithoutCreate makes the store not create a database or a table: Start fails if it
// does not exist. The record is created nevertheless.
func WithoutCreate() Option {
	return optionFunc(func(s *Store) error {
		s.withoutCreate = true
		return nil
	})
}

// WithQuiet sets the quiet time: if a feed receives nothing for this time, it reads the
// record to check that the server is available. It also limits the duration of that read.
// The default is two seconds, the minimum 10 ms, the maximum 48 hours. If it is longer
// than a heartbeat interval, such reads are not needed while there is a leader.
func WithQuiet(d time.Duration) Option {
	return optionFunc(func(s *Store) error { return store.SetQuietTime(&s.quiet, d) })
}

// WithServerNames sets the names of the servers that the messages of errors contain, such as
// "db1:28015". A session does not reveal its servers, so without this option only messages that
// the driver composes contain their names.
func WithServerNames(names ...string) Option {
	return optionFunc(func(s *Store) error { return store.SetServers(&s.servers, names) })
}

// WithRisk accepts tables that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts tables that have several replicas and whose
// write_acks is not majority. The systems that the leader writes to must check its
// fencing token then. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(s *Store) error { return s.accepted.Add(risks...) })
}

// maxQueries is the maximum number of queries in progress. While the driver reconnects, its pool opens a connection for
// each waiting query, and afterwards keeps only one of them, but does not close the others.
const maxQueries = 4

// maxKeySize is RethinkDB's limit of the size of primary keys, in bytes.
const maxKeySize = 127

// validName matches the names of databases and tables that RethinkDB accepts.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,127}$`)

// NewStore creates a store of the election key in a table. It sends no request. The session is
// neither closed nor changed, and must stay open as long as the store; its default
// database does not matter. One connection (MaxOpen) is sufficient for any number of
// stores and feeds. The session's Timeout limits how long the driver tries to connect.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(session r.QueryExecutor, database, table, key string, opts ...Option) (*Store, error) {
	if v := reflect.ValueOf(session); session == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the session is nil", leaderelection.ErrInvalid)
	}
	for what, name := range map[string]string{"database": database, "table": table} {
		if !validName.MatchString(name) {
			return nil, fmt.Errorf("%w: %s %q: must have from 1 to 127 of A-Z, a-z, 0-9, _ and -", leaderelection.ErrInvalid, what, name)
		}
	}
	if database == "rethinkdb" {
		return nil, fmt.Errorf("%w: the database rethinkdb is reserved for the server", leaderelection.ErrInvalid)
	}
	if err := store.CheckText("key", key, maxKeySize); err != nil {
		return nil, err
	}
	s := &Store{
		session: session, database: database, table: table, key: key, quiet: 2 * time.Second,
		queries: make(chan struct{}, maxQueries),
	}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	s.runner = store.Runner{Feeds: store.NewFeeds(s.Read, s.watch, s.quiet), Prefix: "rethinkdb: ", Suffix: s.servers, MeaningOf: meaningOf}
	return s, nil
}

// tableName returns the name of the table for messages.
func (s *Store) tableName() string { return s.database + "." + s.table }

// tableTerm returns the query term of the store's table, whose reads return states that a majority of
// the replicas has.
func (s *Store) tableTerm() r.Term { return s.termOf(s.table) }

// termOf returns the query term of a table of the same database.
func (s *Store) termOf(table string) r.Term {
	return r.DB(s.database).Table(table, r.TableOpts{ReadMode: "majority"})
}

// Close implements [changefeed.Store]. Calls in progress return an error. The session
// stays open.
func (s *Store) Close() error { return s.runner.Close() }
