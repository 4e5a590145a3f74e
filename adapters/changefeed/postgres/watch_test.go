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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/event"
)

// TestFeed_DeliversRecordsWithoutReads checks that followers do not read the record when notifications contain
// it, and that a heartbeat is a single request.
func TestFeed_DeliversRecordsWithoutReads(t *testing.T) {
	server := shared.Get(t)
	table := newTable()
	trace := func(c *queryCounter) func(*pgxpool.Config) {
		return func(conf *pgxpool.Config) { conf.ConnConfig.Tracer = c }
	}
	leaderQueries, followerQueries := &queryCounter{}, &queryCounter{}
	leader, r := createRecord(t, newPool(t, server.Addr(), trace(leaderQueries)), table)
	follower := newStore(t, newPool(t, server.Addr(), trace(followerQueries)), table, postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, follower, r)
	writes, reads := leaderQueries.queries.Load(), followerQueries.queries.Load()
	for range 20 {
		r = fixture.Heartbeat(t, leader, r)
		fixture.AwaitRecord(t, f, r)
	}
	require.EqualValues(t, 20, leaderQueries.queries.Load()-writes, "requests of the leader")
	require.Zero(t, followerQueries.queries.Load()-reads, "requests of the follower")
}

// TestFeed_IgnoresSameTableInOtherSchema checks that a feed does not receive the writes to a table with the same
// name in another schema: channels do not belong to a schema.
func TestFeed_IgnoresSameTableInOtherSchema(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	n := lastName.Add(1)
	schemaOne, schemaTwo := fmt.Sprintf("one_%06d", n), fmt.Sprintf("two_%06d", n)
	execSQL(t, operator, `CREATE SCHEMA `+schemaOne+`; CREATE SCHEMA `+schemaTwo)
	one, first := createRecord(t, operator, pgx.Identifier{schemaOne, "elections"}, postgres.WithQuiet(time.Hour))
	two, other := createRecord(t, newPool(t, server.Addr(), withSetting("search_path", schemaTwo)), pgx.Identifier{"elections"})
	require.NotEqual(t, first.Version, other.Version)
	f := fixture.SubscribeTo(t, one, first)
	fixture.Heartbeat(t, two, other)
	next := fixture.Heartbeat(t, one, first)
	e := fixture.NextEvent(t, f)
	require.Equal(t, next.Version, e.Record.Version)
	now := fixture.Read(t, one)
	require.Equal(t, next.Version, now.Version)
}

// TestFeed_ContinuesAfterTableIsRecreated checks that a feed reports that its table was dropped, and receives
// the writes to the table that is created afterwards.
func TestFeed_ContinuesAfterTableIsRecreated(t *testing.T) {
	server := shared.Get(t)
	pool, table := newPool(t, server.Addr(), nil), newTable()
	s, r := createRecord(t, pool, table)
	reads := &queryCounter{}
	follower := newStore(t, newPool(t, server.Addr(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = reads }), table)
	f := fixture.SubscribeTo(t, follower, r)
	execSQL(t, pool, "DROP TABLE "+table.Sanitize())
	fixture.AwaitEvent(t, f, func(e changefeed.Event) bool { return e.Missing })
	_, err := s.Heartbeat(fixture.Context(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	b := fixture.HeldRecord()
	b.Epoch = "epoch two"
	require.NoError(t, s.Create(fixture.Context(t), b))
	fixture.AwaitEvent(t, f, func(e changefeed.Event) bool { return e.Record.Epoch == b.Epoch })
	r = fixture.Read(t, s)
	before := reads.queries.Load()
	const writes = 30
	for range writes {
		r = fixture.Heartbeat(t, s, r)
		fixture.AwaitRecord(t, f, r)
	}
	// On a busy machine, notifications can be late, and the feed then reads the record a few times.
	require.Less(t, reads.queries.Load()-before, int64(writes))
}

// TestFeed_DeliversLongRecord checks that a feed delivers a record that is too long for a notification.
func TestFeed_DeliversLongRecord(t *testing.T) {
	s, r := createRecord(t, newPool(t, shared.Get(t).Addr(), nil), newTable(), postgres.WithQuiet(time.Hour))
	f := fixture.Subscribe(t, s)
	for _, size := range []int{3900, 3950, 8000, 100_000} {
		next := r
		next.Seq++
		next.Leader, next.Nominee = strings.Repeat("l", size), strings.Repeat("n", size)
		var err error
		r, err = s.Heartbeat(fixture.Context(t), r, next)
		require.NoError(t, err, "%d bytes", 2*size)
		fixture.AwaitRecord(t, f, r)
	}
}

// TestFeed_DoesNotTrustForgedNotifications checks that a feed does not trust a notification that may be forged,
// because any role that may connect can send notifications on any channel. The feed delivers a heartbeat as a
// hint; after any other notification it reads the record, and delivers nothing if the record has not changed.
func TestFeed_DoesNotTrustForgedNotifications(t *testing.T) {
	server := shared.Get(t)
	operator, table, reads := newPool(t, server.Addr(), nil), newTable(), &queryCounter{}
	s, r := createRecord(t, operator, table)
	follower := newStore(t, newPool(t, server.Addr(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = reads }), table,
		postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, follower, r)

	forger := newPool(t, server.Addr(), withUser(newRole(t, operator)))
	_, err := forger.Exec(fixture.Context(t), "SELECT FROM "+table.Sanitize())
	require.ErrorContains(t, err, "permission denied")
	var channel string
	require.NoError(t, operator.QueryRow(fixture.Context(t), "SELECT 'changefeed_' || to_regclass($1)::oid", table.Sanitize()).Scan(&channel))
	hash := sha256.Sum256([]byte("an election"))
	channel = fmt.Sprintf("%s_%x", channel, hash[:16])
	fixture.RunForgedMessages(t, s, f, r, func(r changefeed.Record) {
		_, err := forger.Exec(fixture.Context(t), "SELECT pg_notify($1, $2)", channel, "1 "+store.EncodeMessage(r))
		require.NoError(t, err)
	}, reads.queries.Load)
}

// TestFeed_ReceivesNotificationsDespiteHandlerOfCaller checks that a handler in the caller's configuration does
// not receive the notifications instead of the feed.
func TestFeed_ReceivesNotificationsDespiteHandlerOfCaller(t *testing.T) {
	var calls atomic.Int64
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { calls.Add(1) }
	})
	s, r := createRecord(t, pool, newTable(), postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	r = fixture.Heartbeat(t, s, r)
	fixture.AwaitRecord(t, f, r)
	require.Zero(t, calls.Load())
	require.NotNil(t, pool.Config().ConnConfig.OnNotification, "the caller's configuration has changed")
}

// TestFeed_EndsIfConnectionIsLost checks that a feed ends immediately when the server closes its connection, and that
// the next feed delivers the writes in between.
func TestFeed_EndsIfConnectionIsLost(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	pool := newPool(t, server.Addr(), withSetting("application_name", "the lost one"))
	s, r := createRecord(t, pool, newTable(), postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	execSQL(t, operator, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'the lost one'`)
	_, err := f.Next(fixture.Context(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { // Retry, because the pool's connections have failed as well.
		now, err := s.Heartbeat(fixture.Context(t), r, r)
		if err == nil {
			r = now
		}
		return err == nil
	}, fixture.Patience, 10*time.Millisecond)
	fixture.SubscribeTo(t, s, r)
}

// TestFeed_IdleSessionIsKept checks that the server does not end the session of an idle feed.
func TestFeed_IdleSessionIsKept(t *testing.T) {
	server, table := shared.Get(t), newTable()
	writer, r := createRecord(t, newPool(t, server.Addr(), nil), table)
	const limit = 2 * time.Second // long enough for the statement that disables the limit, even if the machine stalls
	s := newStore(t, newPool(t, server.Addr(), withSetting("idle_session_timeout", limit.String())), table,
		postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	for range 2 {
		time.Sleep(limit)
		r = fixture.Heartbeat(t, writer, r)
		fixture.AwaitRecord(t, f, r)
	}
}

// TestElection_ContinuesAfterLoginIsDisabled checks that a candidacy continues when the role temporarily may
// not log in, that the errors are reported, and that the candidate leads again afterwards.
func TestElection_ContinuesAfterLoginIsDisabled(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	s, _ := createRecord(t, operator, table)
	require.NoError(t, s.Close())
	role := newRole(t, operator)
	execSQL(t, operator, "GRANT ALL ON "+table.Sanitize()+" TO "+role)
	pool := newPool(t, server.Addr(), withUser(role))
	e, err := changefeed.NewElection(newStore(t, pool, table))
	require.NoError(t, err)
	ended, events := make(chan error, 1), e.Events()
	go func() { ended <- e.ElectLeader() }()
	defer func() {
		_ = e.Resign()
		require.NoError(t, <-ended)
	}()
	waitForToken := func(after int64) int64 {
		limit := fixture.Context(t)
		for {
			select {
			case status := <-e.Status():
				if l := status.Leadership; l != nil && l.Token() > after {
					return l.Token()
				}
				require.NoError(t, status.Err)
			case <-limit.Done():
				require.FailNow(t, "the candidate does not become leader")
			}
		}
	}
	token := waitForToken(0)
	execSQL(t, operator, "ALTER ROLE "+role+" NOLOGIN")
	execSQL(t, operator, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"'")
	for failures, limit := 0, fixture.Context(t); failures < 3; {
		select {
		case n := <-events:
			if n.Kind == event.WatchFailed && errors.Is(n.Err, changefeed.ErrUnsuitable) {
				require.ErrorContains(t, n.Err, "not permitted to log in")
				failures++
			}
		case err := <-ended:
			require.FailNow(t, "the candidacy has ended", err)
		case <-limit.Done():
			require.FailNow(t, "the feed's errors are not reported")
		}
	}
	require.Eventually(t, func() bool { return e.Current().Leadership == nil }, fixture.Patience, 10*time.Millisecond)
	execSQL(t, operator, "ALTER ROLE "+role+" LOGIN")
	waitForToken(token)
}

// TestChanges_DeliversOnlyGivenChannel checks that Changes delivers the notifications on the given channel, and
// no others.
func TestChanges_DeliversOnlyGivenChannel(t *testing.T) {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	s, r := createRecord(t, pool, newTable())
	_, err := s.Changes(fixture.Context(t), strings.Repeat("x", 64))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	changes, err := s.Changes(fixture.Context(t), "another place")
	require.NoError(t, err)
	defer changes.Close()
	fixture.Heartbeat(t, s, r)
	execSQL(t, pool, "SELECT pg_notify('a third place', 'no')")
	execSQL(t, pool, "SELECT pg_notify('another place', 'yes')")
	c := fixture.NextEvent(t, changes)
	require.Equal(t, postgres.Change{Channel: "another place", Payload: "yes"}, c)
}

// TestChanges_RejectedChannelDoesNotEndOtherFeeds checks that a channel whose name the server rejects does not
// end the feeds of other channels, and that the reader of the rejected channel receives the error.
func TestChanges_RejectedChannelDoesNotEndOtherFeeds(t *testing.T) {
	execSQL(t, newPool(t, shared.Get(t).Addr(), nil), "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) {
		c.ConnConfig.Database = "latin"
		withSetting("client_encoding", "UTF8")(c)
	})
	s, r := createRecord(t, pool, pgx.Identifier{"elections"}, postgres.WithQuiet(time.Hour))
	f := fixture.SubscribeTo(t, s, r)
	// The encoding LATIN1 of the server does not contain these characters.
	changes, err := s.Changes(fixture.Context(t), "\u9078\u6319")
	if err == nil {
		defer changes.Close()
		_, err = changes.Next(fixture.Context(t))
	}
	fixture.RequireUnsuitable(t, err, "22P05")
	r = fixture.Heartbeat(t, s, r)
	fixture.AwaitRecord(t, f, r)
}
