//go:build unix

package postgres_test

// What PostgreSQL and its driver do that a store could stumble over.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

// blank is a record that a candidate holds, so that what follows are heartbeats.
var blank = changefeed.Record{Epoch: "epoch", Leader: "p", Session: "p's", Term: 1, Seq: 1, TTL: time.Second}

// created is a store with a record, on a pool of its own.
func created(t testing.TB, pool *pgxpool.Pool, table pgx.Identifier, opts ...postgres.Option) (*postgres.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, pool, table, opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	r, err := s.Read(bounded(t))
	require.NoError(t, err)
	return s, r
}

func beat(t testing.TB, s *postgres.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	next := prev
	next.Seq++
	r, err := s.Heartbeat(bounded(t), prev, next)
	require.NoError(t, err)
	return r
}

func subscribe(t testing.TB, s *postgres.Store) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// tells waits for an event of the feed.
func tells(t testing.TB, f changefeed.Feed, what string, is func(changefeed.Event) bool) {
	t.Helper()
	ctx := bounded(t)
	for {
		e, err := f.Next(ctx)
		require.NoError(t, err, what)
		if is(e) {
			return
		}
	}
}

func version(v string) func(changefeed.Event) bool {
	return func(e changefeed.Event) bool { return e.Record.Version == v }
}

func sql(t testing.TB, pool *pgxpool.Pool, text string) {
	t.Helper()
	_, err := pool.Exec(bounded(t), text)
	require.NoError(t, err, text)
}

// TestTrapCreateTableRaces: CREATE TABLE IF NOT EXISTS of several sessions at once fails
// for most of them.
func TestTrapCreateTableRaces(t *testing.T) {
	server := shared.Get(t)
	const n = 6
	var pools [n]*pgxpool.Pool
	for i := range pools {
		pools[i] = newPool(t, server.Addr(), nil)
		require.NoError(t, pools[i].Ping(bounded(t)))
	}
	for range 15 {
		table := newTable()
		var all sync.WaitGroup
		var errs [n]error
		for i, pool := range pools {
			s := newStore(t, pool, table)
			all.Go(func() { errs[i] = s.Create(context.Background(), blank) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		r, err := newStore(t, pools[0], table).Read(bounded(t))
		require.NoError(t, err)
		require.Equal(t, blank.Epoch, r.Epoch)
	}
}

// TestTrapAsynchronousCommit: where sessions do not wait for the disk, an acknowledged
// write is lost in a crash.
func TestTrapAsynchronousCommit(t *testing.T) {
	server := shared.Get(t)
	for _, value := range []string{"off", "local", "remote_apply"} {
		t.Run(value, func(t *testing.T) {
			pool := newPool(t, server.Addr(), setting("synchronous_commit", value))
			s, r := created(t, pool, newTable())
			r = beat(t, s, r)
			require.NoError(t, server.Restart())
			require.Eventually(t, func() bool {
				now, err := s.Read(bounded(t))
				return err == nil && now.Version == r.Version
			}, patience, 10*time.Millisecond)
			var now string
			require.NoError(t, pool.QueryRow(bounded(t), "SHOW synchronous_commit").Scan(&now))
			require.Equal(t, value, now, "the session's setting is the caller's")
		})
	}
}

// TestTrapChannelsHaveNoSchema: equal tables of two schemas do not hear of each other.
func TestTrapChannelsHaveNoSchema(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	n := serial.Add(1)
	schemaOne, schemaTwo := fmt.Sprintf("one_%06d", n), fmt.Sprintf("two_%06d", n)
	sql(t, operator, `CREATE SCHEMA `+schemaOne+`; CREATE SCHEMA `+schemaTwo)
	one, first := created(t, operator, pgx.Identifier{schemaOne, "elections"}, postgres.WithQuiet(time.Hour))
	two, other := created(t, newPool(t, server.Addr(), setting("search_path", schemaTwo)), pgx.Identifier{"elections"})
	require.NotEqual(t, first.Version, other.Version)
	f := subscribe(t, one)
	tells(t, f, "the first event", version(first.Version))
	beat(t, two, other)
	next := beat(t, one, first)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, next.Version, e.Record.Version)
	now, err := one.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, next.Version, now.Version)
}

// TestTrapTableMadeAnew: a feed follows its table when that is another one.
func TestTrapTableMadeAnew(t *testing.T) {
	server := shared.Get(t)
	pool, table := newPool(t, server.Addr(), nil), newTable()
	s, r := created(t, pool, table)
	reads := &counter{}
	follower := newStore(t, newPool(t, server.Addr(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = reads }), table)
	f := subscribe(t, follower)
	tells(t, f, "the record", version(r.Version))
	sql(t, pool, "DROP TABLE "+table.Sanitize())
	tells(t, f, "that the table is gone", func(e changefeed.Event) bool { return e.Missing })
	_, err := s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	b := blank
	b.Epoch = "epoch two"
	require.NoError(t, s.Create(bounded(t), b))
	tells(t, f, "the new record", func(e changefeed.Event) bool { return e.Record.Epoch == b.Epoch })
	r, err = s.Read(bounded(t))
	require.NoError(t, err)
	before := reads.queries.Load()
	const writes = 30
	for range writes {
		r = beat(t, s, r)
		tells(t, f, "a write to the new record", version(r.Version))
	}
	// Not by reading, but for a while in which the machine was busy.
	require.Less(t, reads.queries.Load()-before, int64(writes))
}

// TestTrapPayloadLimit: what does not fit into a notification is told as well.
func TestTrapPayloadLimit(t *testing.T) {
	s, r := created(t, newPool(t, shared.Get(t).Addr(), nil), newTable(), postgres.WithQuiet(time.Hour))
	f := subscribe(t, s)
	for _, size := range []int{3900, 3950, 8000, 100_000} {
		next := r
		next.Seq++
		next.Leader, next.Nominee = strings.Repeat("l", size), strings.Repeat("n", size)
		var err error
		r, err = s.Heartbeat(bounded(t), r, next)
		require.NoError(t, err, "%d bytes", 2*size)
		tells(t, f, fmt.Sprint(2*size, " bytes"), version(r.Version))
	}
}

// counter counts what is asked over the connections of a pool, and those of feeds.
type counter struct{ queries atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFollowersReadNothing: the feed carries the record, and a heartbeat is one statement.
func TestFollowersReadNothing(t *testing.T) {
	server := shared.Get(t)
	table := newTable()
	trace := func(c *counter) func(*pgxpool.Config) {
		return func(conf *pgxpool.Config) { conf.ConnConfig.Tracer = c }
	}
	leads, follows := &counter{}, &counter{}
	leader, r := created(t, newPool(t, server.Addr(), trace(leads)), table)
	follower := newStore(t, newPool(t, server.Addr(), trace(follows)), table, postgres.WithQuiet(time.Hour))
	f := subscribe(t, follower)
	tells(t, f, "the record", version(r.Version))
	before, read := leads.queries.Load(), follows.queries.Load()
	for range 20 {
		r = beat(t, leader, r)
		tells(t, f, "a heartbeat", version(r.Version))
	}
	require.EqualValues(t, 20, leads.queries.Load()-before, "statements of the leader")
	require.Zero(t, follows.queries.Load()-read, "statements of the follower")
}

// TestTrapOnNotification: a handler of the caller's would take the notifications.
func TestTrapOnNotification(t *testing.T) {
	var taken atomic.Int64
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { taken.Add(1) }
	})
	s, r := created(t, pool, newTable(), postgres.WithQuiet(time.Hour))
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	r = beat(t, s, r)
	tells(t, f, "a write", version(r.Version))
	require.Zero(t, taken.Load())
	require.NotNil(t, pool.Config().ConnConfig.OnNotification, "the caller's configuration is as it was")
}

// TestThePoolIsTheCallers: feeds take none of its connections, and it outlives the store.
func TestThePoolIsTheCallers(t *testing.T) {
	var made atomic.Int64
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.AfterConnect = func(context.Context, *pgx.Conn) error { made.Add(1); return nil }
	})
	s, r := created(t, pool, newTable())
	before := made.Load()
	for range 3 {
		tells(t, subscribe(t, s), "the record", version(r.Version))
	}
	require.EqualValues(t, 3, made.Load()-before, "AfterConnect has seen the connections of feeds")
	beat(t, s, r)
	require.Zero(t, pool.Stat().AcquiredConns())
	require.NoError(t, s.Close())
	require.NoError(t, pool.Ping(bounded(t)))
}

// TestClosedPool: a pool that was closed too early is told as such.
func TestClosedPool(t *testing.T) {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	s, r := created(t, pool, newTable())
	pool.Close()
	_, err := s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "closed pool")
}

// TestTrapLostConnection: a feed whose connection the server ends says so at once, and
// the next tells what was missed.
func TestTrapLostConnection(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	pool := newPool(t, server.Addr(), setting("application_name", "the lost one"))
	s, r := created(t, pool, newTable(), postgres.WithQuiet(time.Hour))
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	sql(t, operator, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'the lost one'`)
	_, err := f.Next(bounded(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { // the pool finds out about its own
		now, err := s.Heartbeat(bounded(t), r, r)
		if err == nil {
			r = now
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	tells(t, subscribe(t, s), "what was missed", version(r.Version))
}

// TestRefusesText: what would come back another is refused, and nothing is written.
func TestRefusesText(t *testing.T) {
	s, r := created(t, newPool(t, shared.Get(t).Addr(), nil), newTable())
	for _, id := range []string{"nul \x00", "no UTF-8 \xff"} {
		next := r
		next.Leader = id
		_, err := s.Heartbeat(bounded(t), r, next)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	beat(t, s, r)
}

// TestTrapSerializationFailure: under the strictest isolation losers are told conflicts,
// and nobody anything else; see also TestStoreElsewise. Here a transaction of somebody
// else's has the row while heartbeats arrive, and changes it, or does not.
func TestTrapSerializationFailure(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("Changed=%v", changed), func(t *testing.T) {
			table := newTable()
			pool := newPool(t, server.Addr(), setting("default_transaction_isolation", "repeatable read"))
			s, r := created(t, pool, table)
			tx, err := operator.Begin(bounded(t))
			require.NoError(t, err)
			change := `seq = seq` // makes the row another for the server, not for us
			if changed {
				change = `version = 'another'`
			}
			_, err = tx.Exec(bounded(t), "UPDATE "+table.Sanitize()+" SET "+change)
			require.NoError(t, err)
			result := make(chan error, 1)
			go func() { _, err := s.Heartbeat(context.Background(), r, r); result <- err }()
			require.Eventually(t, func() bool {
				var waiting int
				err := operator.QueryRow(bounded(t), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
				return err == nil && waiting > 0
			}, patience, 10*time.Millisecond)
			require.NoError(t, tx.Commit(bounded(t)))
			if err := <-result; changed {
				require.ErrorIs(t, err, changefeed.ErrConflict)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestChangesOfPlace: Changes delivers the changes of the given place, and no others.
func TestChangesOfPlace(t *testing.T) {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	s, r := created(t, pool, newTable())
	_, err := s.Changes(bounded(t), strings.Repeat("x", 64))
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	changes, err := s.Changes(bounded(t), "another place")
	require.NoError(t, err)
	defer changes.Close()
	beat(t, s, r)
	sql(t, pool, "SELECT pg_notify('a third place', 'no')")
	sql(t, pool, "SELECT pg_notify('another place', 'yes')")
	c, err := changes.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, postgres.Change{Channel: "another place", Payload: "yes"}, c)
}
