//go:build unix

package rethinkdb_test

// What RethinkDB and its driver do that a store could stumble over.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

var blank = changefeed.Record{Epoch: "epoch", Seq: 1, TTL: time.Second}

// created is a store with a record.
func created(t testing.TB, session r.QueryExecutor, table string, opts ...rethinkdb.Option) (*rethinkdb.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, session, table, opts...)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, s.Create(bounded(t), blank))
	rec, err := s.Read(bounded(t))
	require.NoError(t, err)
	return s, rec
}

func next(rec changefeed.Record) changefeed.Record {
	rec.Seq++
	return rec
}

func beat(t testing.TB, s *rethinkdb.Store, prev changefeed.Record) changefeed.Record {
	t.Helper()
	rec, err := s.Heartbeat(bounded(t), prev, next(prev))
	require.NoError(t, err)
	return rec
}

// follow is a feed that has told of rec.
func follow(t testing.TB, s *rethinkdb.Store, rec changefeed.Record) changefeed.Feed {
	t.Helper()
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	tells(t, f, rec)
	return f
}

func tells(t testing.TB, f changefeed.Feed, rec changefeed.Record) {
	t.Helper()
	for {
		e, err := f.Next(bounded(t))
		require.NoError(t, err)
		if e.Record.Version == rec.Version {
			return
		}
	}
}

// ends waits for the feed's error.
func ends(t testing.TB, f changefeed.Feed) {
	t.Helper()
	ctx := bounded(t)
	for {
		if _, err := f.Next(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the feed has not ended")
			unknown(t, err)
			return
		}
	}
}

func unknown(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	for _, known := range []error{changefeed.ErrConflict, changefeed.ErrNoRecord, changefeed.ErrUnsuitable} {
		require.NotErrorIs(t, err, known)
	}
}

// proxied is a network of one's own to the server.
func proxied(t testing.TB, addr string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(addr)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// named counts the tables whose name contains a text.
func named(t testing.TB, session *r.Session, text string) int {
	t.Helper()
	var all []string
	require.NoError(t, r.DB("rethinkdb").Table("table_config").Field("name").CoerceTo("array").ReadAll(&all, session))
	n := 0
	for _, name := range all {
		if strings.Contains(name, text) {
			n++
		}
	}
	return n
}

// TestTrapDuplicateTables: clients that create a table at once create several of one
// name, and then nobody can use it.
func TestTrapDuplicateTables(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	const n = 4
	var sessions [n]*r.Session
	for i := range sessions {
		sessions[i] = connect(t, addr, nil)
	}
	for range 3 {
		table := newTable(t, operator)
		var all sync.WaitGroup
		var errs [n]error
		for i, session := range sessions {
			s := newStore(t, session, table)
			all.Go(func() { errs[i] = s.Create(bounded(t), blank) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		require.Eventually(t, func() bool { // the first may be ready while others put theirs aside
			rec, err := newStore(t, operator, table).Read(bounded(t))
			return err == nil && rec.Epoch == blank.Epoch
		}, patience, 50*time.Millisecond)
		require.Equal(t, 1, named(t, operator, table))
	}
	require.Zero(t, named(t, operator, "changefeed_duplicate"))
}

// TestTrapAmbiguousTable: a name that several tables have already is repaired by Create,
// refused where the store is to make nothing.
func TestTrapAmbiguousTable(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	_, _ = r.DBCreate(database).RunWrite(operator)
	table := ""
	for range 20 { // until the server has made several
		table = newTable(t, operator)
		var all sync.WaitGroup
		for range 4 {
			session := connect(t, addr, nil)
			all.Go(func() { _, _ = r.DB(database).TableCreate(table).RunWrite(session) })
		}
		all.Wait()
		if named(t, operator, table) > 1 {
			break
		}
	}
	require.Greater(t, named(t, operator, table), 1, "the server has made one table only")
	err := newStore(t, operator, table, rethinkdb.WithExistingTable()).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "several tables")
	s, rec := created(t, operator, table)
	beat(t, s, rec)
	require.Equal(t, 1, named(t, operator, table))
}

// TestTrapRepeatedWrite: the driver sends a write again whose connection broke, and the
// writer meets its own write, which is no conflict.
func TestTrapRepeatedWrite(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table)
	again := newStore(t, twice{session}, table)
	_, err := again.Heartbeat(bounded(t), rec, next(rec))
	unknown(t, err)
	now, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, rec.Seq+1, now.Seq)
	require.NoError(t, newStore(t, twice{session}, table).Create(bounded(t), blank))
	_, err = s.Heartbeat(bounded(t), rec, next(rec))
	require.ErrorIs(t, err, changefeed.ErrConflict, "of somebody else")
}

// twice is a session that sends everything again, as the driver does when a connection
// breaks before the answer has come.
type twice struct{ *r.Session }

func (s twice) Query(ctx context.Context, q r.Query) (*r.Cursor, error) {
	if c, err := s.Session.Query(ctx, q); err == nil {
		_ = c.Close()
	}
	return s.Session.Query(ctx, q)
}

// TestTrapConnectionLost: cursors do not resume. A feed says so at once, and the next tells
// what was missed.
func TestTrapConnectionLost(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := created(t, operator, table)
	p := proxied(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(time.Hour))
	f := follow(t, s, rec)
	p.Drop()
	ends(t, f)
	rec = beat(t, writer, rec)
	follow(t, s, rec)
}

// TestTrapSilentServer: a driver that connects anew to a server that is silent waits for
// ever, whatever the context of a query says.
func TestTrapSilentServer(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := created(t, operator, table)
	p := proxied(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(2*time.Second))
	f := follow(t, s, rec)
	p.Cut()
	p.Drop()
	for range 40 { // more than may wait in the background
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		begin := time.Now()
		_, err := s.Heartbeat(ctx, rec, next(rec))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		unknown(t, err)
		require.Less(t, time.Since(begin), 10*time.Second)
	}
	ends(t, f)
	p.Heal()
	require.Eventually(t, func() bool { // a heartbeat of before may have been carried out
		now, err := s.Read(bounded(t))
		if err == nil {
			rec = now
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	rec = beat(t, writer, rec)
	follow(t, s, rec)

	other := newStore(t, connect(t, p.Addr(), nil), table)
	f = follow(t, other, rec)
	p.Cut()
	p.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, _ = other.Read(ctx)
	begin := time.Now()
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	took := time.Since(begin)
	p.Heal() // or the session's own Close would wait
	require.Less(t, took, 8*time.Second, "two seconds each, on a machine that is busy")
}

// TestFeedBeforeTheTable: a feed of what does not exist tells so, and waits for it.
func TestFeedBeforeTheTable(t *testing.T) {
	session := connect(t, server(t), nil)
	s := newStore(t, session, newTable(t, session))
	f, err := s.Subscribe(bounded(t))
	require.NoError(t, err)
	defer f.Close()
	e, err := f.Next(bounded(t))
	require.NoError(t, err)
	require.True(t, e.Missing)
	_, err = s.Read(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	_, err = s.Heartbeat(bounded(t), blank, blank)
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, s.Create(bounded(t), blank))
	rec, err := s.Read(bounded(t))
	require.NoError(t, err)
	tells(t, f, rec)
	rec = beat(t, s, rec)
	tells(t, f, rec)
}

// TestTrapDroppedTable: a feed of a table that is dropped ends.
func TestTrapDroppedTable(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table, rethinkdb.WithQuiet(time.Hour))
	f := follow(t, s, rec)
	exec1(t, session, r.DB(database).TableDrop(table))
	ends(t, f)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Start(bounded(t)), changefeed.ErrUnsuitable)
	require.ErrorIs(t, newStore(t, session, table, rethinkdb.WithExistingTable()).Create(bounded(t), blank), changefeed.ErrNoRecord)
	require.NoError(t, s.Create(bounded(t), blank))
	rec, err := s.Read(bounded(t))
	require.NoError(t, err)
	follow(t, s, rec)
}

// TestForeignDocument: what is no record is not taken for one, and not touched; fields of
// the user's own stay.
func TestForeignDocument(t *testing.T) {
	session := connect(t, server(t), nil)
	table := newTable(t, session)
	s, rec := created(t, session, table)
	doc := r.DB(database).Table(table).Get("an election")
	exec1(t, session, doc.Update(map[string]any{"mine": 7}))
	rec = beat(t, s, rec)
	var kept struct {
		Mine int `rethinkdb:"mine"`
	}
	require.NoError(t, doc.ReadOne(&kept, session))
	require.Equal(t, 7, kept.Mine)
	for _, change := range []any{
		map[string]any{"format": "changefeed/2"},
		map[string]any{"format": "changefeed/1", "term": "one"},
		map[string]any{"term": 1.5},
		map[string]any{"term": 1, "epoch": ""},
	} {
		exec1(t, session, doc.Update(change))
		require.ErrorIs(t, newStore(t, session, table).Start(bounded(t)), changefeed.ErrUnsuitable)
		_, err := s.Read(bounded(t))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		wrong := rec
		wrong.Version = "another"
		_, err = s.Heartbeat(bounded(t), wrong, next(rec))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	exec1(t, session, doc.Replace(map[string]any{"id": "an election"}))
	_, err := s.Heartbeat(bounded(t), changefeed.Record{}, next(rec))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable, "what has no version does not match none")
}

// TestPrimaryKey: a table with another is refused.
func TestPrimaryKey(t *testing.T) {
	session := connect(t, server(t), nil)
	_, _ = r.DBCreate(database).RunWrite(session)
	table := newTable(t, session)
	exec1(t, session, r.DB(database).TableCreate(table, r.TableCreateOpts{PrimaryKey: "other"}))
	err := newStore(t, session, table).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "primary key")
}

// TestPermissions: what the user lacks is told.
func TestPermissions(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	s, rec := created(t, operator, table)
	for name, c := range map[string]struct {
		rights map[string]any
		good   bool
	}{
		"None":      {map[string]any{}, false},
		"Read":      {map[string]any{"read": true}, false},
		"ReadWrite": {map[string]any{"read": true, "write": true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			user := newName("user")
			users := r.DB("rethinkdb").Table("users")
			exec1(t, operator, users.Insert(map[string]any{"id": user, "password": "secret"}))
			t.Cleanup(func() { exec1(t, operator, users.Get(user).Delete()) })
			require.NoError(t, r.DB(database).Table(table).Grant(user, c.rights).Exec(operator))
			session := connect(t, addr, func(o *r.ConnectOpts) { o.Username, o.Password = user, "secret" })
			limited := newStore(t, session, table)
			err := limited.Start(bounded(t))
			if c.good {
				require.NoError(t, err)
				require.NoError(t, limited.Create(bounded(t), blank))
				follow(t, limited, rec)
				rec = beat(t, limited, rec)
			} else {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable)
				require.ErrorContains(t, err, "grant")
			}
			another := newStore(t, session, newTable(t, operator))
			require.ErrorIs(t, another.Create(bounded(t), blank), changefeed.ErrUnsuitable)
		})
	}
	now, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, rec.Version, now.Version)
}

// TestSessionIsTheCallers: it outlives the store.
func TestSessionIsTheCallers(t *testing.T) {
	session := connect(t, server(t), nil)
	s, rec := created(t, session, newTable(t, session))
	follow(t, s, rec)
	require.NoError(t, s.Close())
	require.True(t, session.IsConnected())
	require.NoError(t, r.Expr(1).Exec(session))
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	addr := server(t)
	table := newTable(t, connect(t, addr, nil))
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := proxied(t, addr)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

// TestChangesOfPlace: Changes delivers the changes of the given table, and no others.
func TestChangesOfPlace(t *testing.T) {
	session := connect(t, server(t), nil)
	s, rec := created(t, session, newTable(t, session))
	other, third := newTable(t, session), newTable(t, session)
	for _, table := range []string{other, third} {
		exec1(t, session, r.DB(database).TableCreate(table))
	}
	changes, err := s.Changes(bounded(t), other)
	require.NoError(t, err)
	defer changes.Close()
	beat(t, s, rec)
	for _, table := range []string{third, other} {
		exec1(t, session, r.DB(database).Table(table).Insert(map[string]any{"id": "in " + table}))
	}
	c, err := changes.Next(bounded(t))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": "in " + other}, c.(rethinkdb.Change).New)
}
