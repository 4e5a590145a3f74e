package rethinkdb_test

import (
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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestMain checks for leaked goroutines. It ignores two goroutines of the driver's mock, which block forever if the
// mock's reader begins to read again before the connection is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("gopkg.in/rethinkdb/rethinkdb-go%2ev6.(*mockConn).Read"),
		goleak.IgnoreTopFunction("gopkg.in/rethinkdb/rethinkdb-go%2ev6.(*Connection).processResponses"))
}

// serverAddr returns the address of a RethinkDB server, for which Debian has no package. It skips
// the test if the environment contains none. The user needs the permission to create databases and
// users. If RETHINKDB_RESTART is a shell command that kills the server and starts it again with the
// same data, restarts are tested as well:
//
//	RETHINKDB_ADDR=127.0.0.1:28015 go test ./adapters/changefeed/rethinkdb
//
// The connection pool of the driver contains a data race when it reconnects, so with -race also pass
// -gcflags=gopkg.in/rethinkdb/rethinkdb-go.v6=-race=false.
func serverAddr(t testing.TB) string {
	addr := os.Getenv("RETHINKDB_ADDR")
	if addr == "" {
		t.Skip("not run: no RethinkDB server: set RETHINKDB_ADDR to its host:port")
	}
	return addr
}

// connect returns a session that is closed when the test ends. change may be nil.
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

var lastName atomic.Int64

// newName returns a name that no other test uses, in this run or another.
func newName(what string) string {
	return fmt.Sprintf("%s_%d_%d", what, time.Now().UnixNano(), lastName.Add(1))
}

// execWrite executes a write.
func execWrite(t testing.TB, session *r.Session, query r.Term) {
	t.Helper()
	_, err := query.RunWrite(session, r.RunOpts{Context: fixture.Context(t)})
	require.NoError(t, err)
}

func newStore(t testing.TB, session r.QueryExecutor, table string, opts ...rethinkdb.Option) *rethinkdb.Store {
	t.Helper()
	s, err := rethinkdb.NewStore(session, database, table, "an election", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newTable returns the name of a table that is dropped when the test ends.
func newTable(t testing.TB, operator *r.Session) string {
	t.Helper()
	table := newName("elections")
	t.Cleanup(func() { _, _ = r.DB(database).TableDrop(table).RunWrite(operator) })
	return table
}

// newFactory returns a factory of backends. All backends are in one table, because the server needs a second to create
// a table, and each has a separate key.
func newFactory(t testing.TB) storetest.Factory {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	name := newTable(t, operator)
	return func(t testing.TB) *storetest.Backend {
		key := newName("an election")
		table := r.DB(database).Table(name)
		b := &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				s, err := rethinkdb.NewStore(connect(t, addr, nil), database, name, key)
				require.NoError(t, err)
				return s
			},
			Lose: func(t testing.TB) { execWrite(t, operator, table.Get(key).Delete()) },
			Put: func(t testing.TB, name string) {
				execWrite(t, operator, table.Insert(map[string]any{"id": name, "value": newName("")}, r.InsertOpts{Conflict: "replace"}))
			},
			Is: func(change any, name string) bool {
				c, _ := change.(rethinkdb.Change)
				doc, _ := c.New.(map[string]any)
				return doc["id"] == name
			},
			Patience: fixture.Patience,
		}
		if command := os.Getenv("RETHINKDB_RESTART"); command != "" {
			b.Restart = func(t testing.TB) { restartServer(t, operator, command) }
		}
		return b
	}
}

// restartServer runs a command that kills the server and starts it again, and waits until the
// server is ready.
func restartServer(t testing.TB, operator *r.Session, command string) {
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	require.NoError(t, err, strings.TrimSpace(string(out)))
	require.Eventually(t, func() bool {
		return r.DB(database).Wait(r.WaitOpts{Timeout: 5}).Exec(operator, r.ExecOpts{Context: fixture.Context(t)}) == nil
	}, fixture.Patience, 50*time.Millisecond)
}

// createRecord creates a record, and returns it with its store.
func createRecord(t testing.TB, session r.QueryExecutor, table string, opts ...rethinkdb.Option) (*rethinkdb.Store, changefeed.Record) {
	t.Helper()
	s := newStore(t, session, table, opts...)
	return s, fixture.CreateRecord(t, s)
}

// countTables returns the number of tables whose name contains a text.
func countTables(t testing.TB, session *r.Session, text string) int {
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
