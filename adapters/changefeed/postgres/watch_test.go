//go:build unix

package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
)

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

// TestForgedNotifications: any role that may connect can send notifications on any channel, and
// needs no privilege on the table. A notification is believed to be a heartbeat at most; any
// other makes the feed read the record, and delivers nothing if that is as before.
func TestForgedNotifications(t *testing.T) {
	server := shared.Get(t)
	operator, table, reads := newPool(t, server.Addr(), nil), newTable(), &counter{}
	s, r := created(t, operator, table)
	follower := newStore(t, newPool(t, server.Addr(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = reads }), table,
		postgres.WithQuiet(time.Hour))
	f := subscribe(t, follower)
	tells(t, f, "the record", version(r.Version))

	forger := newPool(t, server.Addr(), as(newRole(t, operator)))
	_, err := forger.Exec(bounded(t), "SELECT FROM "+table.Sanitize())
	require.ErrorContains(t, err, "permission denied")
	var channel string
	require.NoError(t, operator.QueryRow(bounded(t), "SELECT 'changefeed_' || to_regclass($1)::oid", table.Sanitize()).Scan(&channel))
	hash := sha256.Sum256([]byte("an election"))
	channel = fmt.Sprintf("%s_%x", channel, hash[:16])
	send := func(r changefeed.Record) {
		_, err := forger.Exec(bounded(t), "SELECT pg_notify($1, $2)", channel, "1 "+codec.EncodeMessage(r))
		require.NoError(t, err)
	}

	for what, forged := range forgeries(r) {
		before := reads.queries.Load()
		send(forged)
		require.Eventually(t, func() bool { return reads.queries.Load() > before }, patience, time.Millisecond, what)
		tellsNothing(t, f, what)
	}
	forged := r
	forged.Seq, forged.Version = r.Seq+1, "forged"
	send(forged)
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Hint, "a heartbeat is not delivered as a hint")
	r = beat(t, s, r) // with the Seq of the forged one
	e, err = f.Next(bounded(t))
	require.NoError(t, err)
	require.False(t, e.Hint, "the record was read")
	require.Equal(t, r, e.Record)
}

// forgeries are messages that a client can send which has no permission for the record: what
// they claim, of the record that follows r.
func forgeries(r changefeed.Record) map[string]changefeed.Record {
	all := map[string]changefeed.Record{}
	for name, change := range map[string]func(*changefeed.Record){
		"the end of the election": func(r *changefeed.Record) { r.Ended = true },
		"the last term":           func(r *changefeed.Record) { r.Term = 1<<63 - 2 },
		"a release":               func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		"another leader":          func(r *changefeed.Record) { r.Leader, r.Session = "q", "q's" },
		"a nominee":               func(r *changefeed.Record) { r.Nominee = "q" },
		"a short lease":           func(r *changefeed.Record) { r.TTL = 1 },
		"another epoch":           func(r *changefeed.Record) { r.Epoch = "another" },
		"a distant heartbeat":     func(r *changefeed.Record) { r.Seq += 1000 },
	} {
		forged := r
		forged.Seq++
		change(&forged)
		all[name+", with the true version"] = forged
		forged.Version = "forged"
		all[name] = forged
	}
	return all
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

// TestNoLoginForAWhile: a role that may not log in for a while, when the feed's connection has
// ended, ends no candidacy. The errors are reported, and the candidate leads again.
func TestNoLoginForAWhile(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	s, _ := created(t, operator, table)
	require.NoError(t, s.Close())
	rotated := newRole(t, operator)
	sql(t, operator, "GRANT ALL ON "+table.Sanitize()+" TO "+rotated)
	pool := newPool(t, server.Addr(), as(rotated))
	e, err := changefeed.NewElection(newStore(t, pool, table))
	require.NoError(t, err)
	ended, events := make(chan error, 1), e.Events()
	go func() { ended <- e.ElectLeader() }()
	defer func() {
		_ = e.Resign()
		require.NoError(t, <-ended)
	}()
	leads := func(after int64) int64 {
		limit := bounded(t)
		for {
			select {
			case status := <-e.Status():
				if l := status.Leadership; l != nil && l.Token() > after {
					return l.Token()
				}
				require.NoError(t, status.Err)
			case <-limit.Done():
				require.FailNow(t, "it does not lead")
			}
		}
	}
	token := leads(0)
	sql(t, operator, "ALTER ROLE "+rotated+" NOLOGIN")
	sql(t, operator, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+rotated+"'")
	for refusals, limit := 0, bounded(t); refusals < 3; {
		select {
		case n := <-events:
			if n.Kind == leaderelection.EventWatchFailed && errors.Is(n.Err, changefeed.ErrUnsuitable) {
				require.ErrorContains(t, n.Err, "not permitted to log in")
				refusals++
			}
		case err := <-ended:
			require.FailNow(t, "the candidacy has ended", err)
		case <-limit.Done():
			require.FailNow(t, "the feed's errors are not reported")
		}
	}
	sql(t, operator, "ALTER ROLE "+rotated+" LOGIN")
	leads(token)
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
