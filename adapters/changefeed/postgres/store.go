package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a table. It implements
// [changefeed.Store]. Its methods may be called from any goroutine.
type Store struct {
	shared        *shared
	released      sync.Once
	table         string // table is the quoted name of the table, with its schema if it was given.
	key           string
	withoutCreate bool
	changes       string // changes is the default channel of Changes.
	quiet         time.Duration
	sql           statements
	polled        changefeed.Store // polled is this store with feeds that poll, or nil without WithPoll.
	accepted      store.AcceptedRisks
	runner        store.Runner
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithoutCreate makes the store not create a table: Start fails if it does not exist.
// The record is created nevertheless.
func WithoutCreate() Option {
	return optionFunc(func(s *Store) error {
		s.withoutCreate = true
		return nil
	})
}

// WithQuiet sets the quiet time: if a feed receives nothing for this time, it reads the
// record to check its connection. It also limits the duration of that read; Start waits
// twice as long for a notification. The default is two seconds, the minimum 10 ms, the
// maximum 48 hours. If it is longer than a heartbeat interval, such reads are not needed
// while there is a leader.
func WithQuiet(d time.Duration) Option {
	return optionFunc(func(s *Store) error { return store.SetQuietTime(&s.quiet, d) })
}

// WithPoll makes feeds read the record at an interval, as [store.Poll] describes, instead of
// receiving notifications. It is for connection poolers in transaction mode, such as PgBouncer's,
// which do not deliver notifications. The requests of the store then use neither prepared statements
// nor settings of sessions, and Changes returns an error that wraps [errors.ErrUnsupported]. Other
// requests of the program on the same pool still prepare statements, unless its
// DefaultQueryExecMode is [pgx.QueryExecModeExec]. Half a heartbeat is a suitable interval.
// Candidates with and without this option can compete with each other.
func WithPoll(interval time.Duration) Option {
	return optionFunc(func(s *Store) (err error) {
		s.polled, err = store.Poll(unowned{s}, interval)
		return err
	})
}

// unowned is a Store whose Close does nothing, because a polled store must not close the Store that it
// uses.
type unowned struct{ *Store }

// Close does nothing.
func (unowned) Close() error { return nil }

// WithRisk accepts servers that Start rejects with a [changefeed.UnsafeError].
// [changefeed.RiskFailover] accepts standbys that can lack acknowledged commits; use it
// also if the failover never promotes such a standby. [changefeed.RiskPowerLoss] accepts
// fsync off. Unless the deployment excludes the risk in another way, the systems that the
// leader writes to must check its fencing token. The option may be given several times.
func WithRisk(risks ...changefeed.Risk) Option {
	return optionFunc(func(s *Store) error { return s.accepted.Add(risks...) })
}

// WithChannel sets the channel whose notifications [Store.Changes] delivers. The default is
// the table's name without its schema.
func WithChannel(name string) Option {
	return optionFunc(func(s *Store) error {
		s.changes = name
		return checkName("channel", name)
	})
}

// NewStore creates a store of the election key in a table, named as in
// pgx.Identifier{"elections"} or pgx.Identifier{"schema", "elections"}. The name is
// quoted, so it may contain any characters. A name without a schema is resolved by
// search_path, in the pool's connections and in those of feeds. NewStore sends no request. The
// pool is neither closed nor changed, and must stay open as long as the store.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(pool *pgxpool.Pool, table pgx.Identifier, key string, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", leaderelection.ErrInvalid)
	}
	if len(table) != 1 && len(table) != 2 {
		return nil, fmt.Errorf("%w: a table's name has one or two parts, not %d: %q", leaderelection.ErrInvalid, len(table), []string(table))
	}
	for _, part := range table {
		if err := checkName("table", part); err != nil {
			return nil, err
		}
	}
	if err := store.CheckText("key", key, store.Unlimited); err != nil {
		return nil, err
	}
	s := &Store{
		table: table.Sanitize(), key: key, changes: table[len(table)-1],
		quiet: 2 * time.Second,
	}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	s.sql = newStatements(s.table)
	s.shared = share(pool, s.polled != nil)
	s.runner = store.Runner{Feeds: store.NewFeeds(s.Read, s.watch, s.quiet), Prefix: "postgres: ", Suffix: " at " + serverNames(pool), MeaningOf: meaningOf}
	return s, nil
}

// checkName returns an error if the server would reject or truncate a name.
func checkName(what, name string) error { return store.CheckText(what, name, 63) }

// keyHash returns a hash of the key for the name of the channel, which can have 63 bytes.
func (s *Store) keyHash() string {
	sum := sha256.Sum256([]byte(s.key))
	return hex.EncodeToString(sum[:16])
}

// serverNames returns the addresses of a pool's servers, for messages.
func serverNames(pool *pgxpool.Pool) string {
	conf := pool.Config().ConnConfig
	all := []string{fmt.Sprintf("%s:%d", conf.Host, conf.Port)}
	for _, f := range conf.Fallbacks {
		if a := fmt.Sprintf("%s:%d", f.Host, f.Port); a != all[len(all)-1] {
			all = append(all, a)
		}
	}
	return strings.Join(all, ",")
}

// Close implements [changefeed.Store]. Calls in progress return an error. The pool stays open.
// When the last store on a pool is closed, Close also closes the connections that these stores
// shared.
func (s *Store) Close() error {
	if s.polled != nil {
		_ = s.polled.Close()
	}
	err := s.runner.Close()
	s.released.Do(s.shared.release)
	return err
}

// queryRow executes a statement that returns one row, and scans it.
func (s *Store) queryRow(ctx context.Context, sql string, args, results []any) error {
	return s.execute(ctx, sql, args, func(replies pgx.BatchResults) error { return replies.QueryRow().Scan(results...) })
}

// exec executes a statement.
func (s *Store) exec(ctx context.Context, sql string, args ...any) error {
	return s.execute(ctx, sql, args, func(replies pgx.BatchResults) error {
		_, err := replies.Exec()
		return err
	})
}

// execute executes a statement in a transaction that waits for each lock for lockLimit at most. It sends the commands
// of the transaction and the statement together, so that they need one round trip. receive receives the reply to
// the statement.
func (s *Store) execute(ctx context.Context, sql string, args []any, receive func(replies pgx.BatchResults) error) error {
	pool, err := s.shared.poolForRequests(ctx)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(`SELECT set_config('lock_timeout', $1::text, true)`, formatMillis(lockLimit(ctx)))
	batch.Queue(sql, args...)
	replies := pool.SendBatch(ctx, &batch)
	if _, err = replies.Exec(); err == nil {
		err = receive(replies)
	}
	return cmp.Or(err, replies.Close()) // Close returns the error if the transaction was not committed.
}

// maxLockLimit is the longest time for which a request waits on the server for a lock, for example of a row that
// another client has changed in a transaction that is still open. While a request waits, it occupies one of the
// reserved connections, which other elections need. Candidates hold locks only during a statement, so a longer wait
// would only serve other programs.
const maxLockLimit = 500 * time.Millisecond

// lockLimit returns how long a request waits for a lock: a quarter of the time until the deadline of
// ctx, so that the error of the server arrives before the deadline, but at most maxLockLimit.
func lockLimit(ctx context.Context) time.Duration {
	limit := maxLockLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/4)
	}
	return max(limit, time.Millisecond) // 0 would mean no limit.
}

func formatMillis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
