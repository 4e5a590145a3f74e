//go:build unix

package tasks

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// startDatabase starts PostgreSQL until the test ends, and returns its address.
func startDatabase(t *testing.T) string {
	srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres("fsync=on") })
	return "postgres://postgres@" + srv.Addr() + "/postgres?sslmode=disable"
}

// TestDatabase_ReplicasLeadInTurn checks that two replicas that start at the same time lead in turn, and that
// the second continues with the total of the first.
func TestDatabase_ReplicasLeadInTurn(t *testing.T) {
	address := startDatabase(t)
	admin, server := connect(t, address), "-db="+address
	for _, s := range statements(t, "../../docs/tasks/database.md", "CREATE TABLE fence", "CREATE TABLE account", "INSERT INTO account") {
		admin.exec(s)
	}
	first, second := start(t, server, "database", "-name=first"), start(t, server, "database", "-name=second")
	leader, follower, next := first, second, "second leads with token"
	if waitForLeader(t, first, second) == second {
		leader, follower, next = second, first, "first leads with token"
	}
	leader.waitForLine("total 2")
	leader.interrupt()
	total := admin.read("SELECT total FROM account")
	follower.waitForLine(next)
	follower.waitForLine(fmt.Sprintf("total %d", total+1))
	follower.interrupt()
}

// waitForLeader waits until one of two replicas leads, and returns it. Both must still run.
func waitForLeader(t *testing.T, first, second *program) *program {
	t.Helper()
	limit := time.After(patience)
	for {
		p := first
		var line string
		var open bool
		select {
		case line, open = <-first.output.Unread:
		case line, open = <-second.output.Unread:
			p = second
		case <-limit:
			require.Fail(t, "no replica leads")
		}
		require.True(t, open, "%s has exited", p.cmd.Args)
		if strings.Contains(line, "leads with token") {
			return p
		}
		t.Log(line)
	}
}

// session is a connection to the database of one leader.
type session struct {
	*testing.T
	*pgx.Conn
}

func connect(t *testing.T, address string) session {
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return session{t, conn}
}

// exec executes a statement, and returns the number of affected rows.
func (s session) exec(statement string, args ...any) int {
	s.Helper()
	tag, err := s.Conn.Exec(s.Context(), statement, args...)
	require.NoError(s, err, statement)
	return int(tag.RowsAffected())
}

func (s session) read(query string) (n int) {
	s.Helper()
	require.NoError(s, s.QueryRow(s.Context(), query).Scan(&n))
	return n
}

// statements returns the SQL statements in a document that begin with the given words. The document
// must contain exactly one statement for each beginning.
func statements(t *testing.T, document string, begins ...string) (all []string) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, begin := range begins {
		var found []string
		for line := range strings.Lines(string(text)) {
			if statement, isStatement := strings.CutSuffix(strings.TrimSpace(line), ";"); isStatement && strings.HasPrefix(statement, begin) {
				found = append(found, statement)
			}
		}
		require.Len(t, found, 1, "%s: %s", document, begin)
		all = append(all, found[0])
	}
	return all
}

// TestFencing_StatementsProtectData checks that the statements of the documents protect data from a former
// leader that acts after the new leader has read, and that an update is lost when the new leader does not
// register its token before it reads.
func TestFencing_StatementsProtectData(t *testing.T) {
	const former, next = 5, 6 // tokens
	address := startDatabase(t)
	a, b := connect(t, address), connect(t, address)

	t.Run("NotRegistered", func(t *testing.T) {
		a.exec("CREATE TABLE account (id int, total int, token bigint)")
		a.exec("INSERT INTO account VALUES (1, 100, 0)")
		const write = "UPDATE account SET total = $2, token = $1 WHERE token <= $1"
		old, read := a.read("SELECT total FROM account"), b.read("SELECT total FROM account")
		require.Equal(t, 1, a.exec(write, former, old-10), "the former leader's write is acknowledged")
		require.Equal(t, 1, b.exec(write, next, read-20))
		require.Equal(t, 80, b.read("SELECT total FROM account"), "an acknowledged update is lost")
	})
	t.Run("Row", func(t *testing.T) {
		lock := statements(t, "../../docs/tasks/lock.md", "UPDATE account SET token", "UPDATE account SET total")
		a.exec("UPDATE account SET total = 100, token = 0")
		require.Equal(t, 1, a.exec(lock[0], former))
		require.Equal(t, 1, a.exec(lock[1], former))
		require.Equal(t, 1, b.exec(lock[0], next))
		require.Equal(t, 101, b.read("SELECT total FROM account"))
		require.Zero(t, a.exec(lock[1], former), "the former holder's write")
		require.Zero(t, a.exec(lock[0], former))
		require.Equal(t, 1, b.exec(lock[1], next))

		a.exec("CREATE TABLE report (id int, text text, token bigint)")
		a.exec("INSERT INTO report VALUES (1, '', 0)")
		report := statements(t, "../../docs/getting-started.md", "UPDATE report SET token", "UPDATE report SET text")
		require.Equal(t, 1, a.exec(report[0], former))
		require.Equal(t, 1, b.exec(report[0], next))
		require.Zero(t, a.exec(report[1], former, "late"))
		require.Equal(t, 1, b.exec(report[1], next, "text"))
	})
	t.Run("Transaction", func(t *testing.T) {
		s := statements(t, "../../docs/tasks/fencing.md", "CREATE TABLE fence", "INSERT INTO fence",
			"UPDATE fence SET token", "SELECT token", "INSERT INTO entry (text) VALUES", "UPDATE total", "INSERT INTO entry (text) SELECT")
		register, check, insert, count, insertChecked := s[2], s[3], s[4], s[5], s[6]
		a.exec(s[0])
		a.exec(s[1])
		a.exec("CREATE TABLE entry (text text)")
		a.exec("CREATE TABLE total (entries int)")
		a.exec("INSERT INTO total VALUES (0)")
		require.Equal(t, 1, a.exec(register, former))
		require.Equal(t, 1, a.exec(insertChecked, former, "zero"))
		a.exec("BEGIN")
		require.Equal(t, 1, a.exec(check, former))
		registered := make(chan error, 1)
		go func() {
			_, err := b.Conn.Exec(t.Context(), register, next)
			registered <- err
		}()
		waiting := connect(t, address)
		require.Eventually(t, func() bool {
			return waiting.read("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1
		}, patience, 10*time.Millisecond, "the registration does not wait for the transaction")
		require.Equal(t, 1, a.exec(insert))
		require.Equal(t, 1, a.exec(count))
		a.exec("COMMIT")
		require.NoError(t, <-registered)
		require.Equal(t, 2, b.read("SELECT count(*) FROM entry"), "the new leader does not read what was committed")

		a.exec("BEGIN")
		require.Zero(t, a.exec(check, former), "the former leader's transaction")
		a.exec("ROLLBACK")
		require.Zero(t, a.exec(insertChecked, former, "late"))
		require.Equal(t, 1, b.exec(insertChecked, next, "next"))
	})
}
