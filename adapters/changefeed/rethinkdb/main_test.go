package rethinkdb_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestMain checks for leaked goroutines, except two of the driver's mock: if its reader
// begins to read again before the connection is closed, both block forever.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("gopkg.in/rethinkdb/rethinkdb-go%2ev6.(*mockConn).Read"),
		goleak.IgnoreTopFunction("gopkg.in/rethinkdb/rethinkdb-go%2ev6.(*Connection).processResponses"))
}

// patience is how long anything may take on a machine that is busy.
const patience = 20 * time.Second

// server is the address of a RethinkDB, of which there is no Debian package.
func server(t testing.TB) string {
	addr := os.Getenv("RETHINKDB_ADDR")
	if addr == "" {
		t.Skip("not run: no RethinkDB server: set RETHINKDB_ADDR to its host:port")
	}
	return addr
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect is a session of the test's own; change may be nil.
func connect(t testing.TB, addr string, change func(*r.ConnectOpts)) *r.Session {
	t.Helper()
	opts := r.ConnectOpts{Address: addr, Timeout: 5 * time.Second}
	if change != nil {
		change(&opts)
	}
	session, err := r.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

const database = "changefeed_test"

var names atomic.Int64

// newName is one that no other test has, nor another run.
func newName(what string) string {
	return fmt.Sprintf("%s_%d_%d", what, time.Now().UnixNano(), names.Add(1))
}

func exec1(t testing.TB, session *r.Session, query r.Term) {
	t.Helper()
	_, err := query.RunWrite(session, r.RunOpts{Context: bounded(t)})
	require.NoError(t, err)
}

func newStore(t testing.TB, session r.QueryExecutor, table string, opts ...rethinkdb.Option) *rethinkdb.Store {
	t.Helper()
	s, err := rethinkdb.New(session, database, table, "an election", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newTable is a name, and the table is dropped at the end.
func newTable(t testing.TB, operator *r.Session) string {
	t.Helper()
	table := newName("elections")
	t.Cleanup(func() { _, _ = r.DB(database).TableDrop(table).RunWrite(operator) })
	return table
}

// backend is a key in one table, which all cases of a test share, because it takes the
// server a second to make one.
func backend(t testing.TB) storetest.Factory {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	return func(t testing.TB) *storetest.Backend {
		key := newName("an election")
		in := r.DB(database).Table(table)
		b := &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := rethinkdb.New(connect(t, addr, nil), database, table, key)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) { exec1(t, operator, in.Get(key).Delete()) },
			Put: func(t testing.TB, name string) {
				exec1(t, operator, in.Insert(map[string]any{"id": name, "value": newName("")}, r.InsertOpts{Conflict: "replace"}))
			},
			Is: func(change any, name string) bool {
				c, _ := change.(rethinkdb.Change)
				doc, _ := c.New.(map[string]any)
				return doc["id"] == name
			},
			Patience: patience,
		}
		if command := os.Getenv("RETHINKDB_RESTART"); command != "" {
			b.Restart = func(t testing.TB) { restart(t, operator, command) }
		}
		return b
	}
}

// restart runs a command that kills the server and starts it again, and waits until that
// serves.
func restart(t testing.TB, operator *r.Session, command string) {
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	require.NoError(t, err, strings.TrimSpace(string(out)))
	require.Eventually(t, func() bool {
		return r.DB(database).Wait(r.WaitOpts{Timeout: 5}).Exec(operator, r.ExecOpts{Context: bounded(t)}) == nil
	}, patience, 50*time.Millisecond)
}

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
