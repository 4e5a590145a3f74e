//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestCreate_SucceedsIfCalledConcurrently checks that Create succeeds when other stores create the table at the
// same time, although CREATE TABLE IF NOT EXISTS fails for most of them.
func TestCreate_SucceedsIfCalledConcurrently(t *testing.T) {
	server := shared.Get(t)
	const n = 6
	var pools [n]*pgxpool.Pool
	for i := range pools {
		pools[i] = newPool(t, server.Addr(), nil)
		require.NoError(t, pools[i].Ping(fixture.Context(t)))
	}
	for range 15 {
		table := newTable()
		var all sync.WaitGroup
		var errs [n]error
		for i, pool := range pools {
			s := newStore(t, pool, table)
			all.Go(func() { errs[i] = s.Create(context.Background(), fixture.HeldRecord()) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		r, err := newStore(t, pools[0], table).Read(fixture.Context(t))
		require.NoError(t, err)
		require.Equal(t, fixture.HeldRecord().Epoch, r.Epoch)
	}
}

// TestHeartbeat_SurvivesCrashDespiteAsynchronousCommit checks that an acknowledged heartbeat is not lost in a
// crash even if synchronous_commit of the session does not make commits wait for the disk.
func TestHeartbeat_SurvivesCrashDespiteAsynchronousCommit(t *testing.T) {
	server := shared.Get(t)
	for _, value := range []string{"off", "local", "remote_apply"} {
		t.Run(value, func(t *testing.T) {
			pool := newPool(t, server.Addr(), withSetting("synchronous_commit", value))
			s, r := createRecord(t, pool, newTable())
			r = fixture.Heartbeat(t, s, r)
			require.NoError(t, server.Restart())
			require.Eventually(t, func() bool {
				now, err := s.Read(fixture.Context(t))
				return err == nil && now.Version == r.Version
			}, fixture.Patience, 10*time.Millisecond)
			require.Eventually(t, func() bool { // Retry, because the pool's connections have failed.
				var now string
				err := pool.QueryRow(fixture.Context(t), "SHOW synchronous_commit").Scan(&now)
				return err == nil && now == value
			}, fixture.Patience, 10*time.Millisecond, "the session's setting has changed")
		})
	}
}

// TestHeartbeat_CommitWaitsForDisksOfStandbys checks that the commit of a heartbeat waits for the disks of the server
// and of its synchronous standbys, for any setting of the session. A deferred trigger reads the setting that is in
// effect at the commit.
func TestHeartbeat_CommitWaitsForDisksOfStandbys(t *testing.T) {
	server := shared.Get(t)
	for value, want := range map[string]string{
		"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply",
	} {
		pool, table := newPool(t, server.Addr(), withSetting("synchronous_commit", value)), newTable()
		s, r := createRecord(t, pool, table)
		name := fmt.Sprintf("commit_%06d", lastName.Add(1))
		execSQL(t, pool, "CREATE TABLE "+name+" (value text)")
		executeAtCommit(t, pool, table, name, "INSERT INTO "+name+" VALUES (current_setting('synchronous_commit'))")
		fixture.Heartbeat(t, s, r)
		var got string
		require.NoError(t, pool.QueryRow(fixture.Context(t), "SELECT value FROM "+name).Scan(&got))
		require.Equal(t, want, got, value)
	}
}

// executeAtCommit makes the server execute a statement when a change of a table is committed. name is the name of
// the function and of the trigger that it creates.
func executeAtCommit(t *testing.T, pool *pgxpool.Pool, table pgx.Identifier, name, statement string) {
	execSQL(t, pool, fmt.Sprintf(`CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %[3]s; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER %[1]s AFTER UPDATE ON %[2]s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION %[1]s()`,
		name, table.Sanitize(), statement))
}

// TestHeartbeat_FailsIfCommitFails checks that a heartbeat that the server could not commit is not acknowledged.
func TestHeartbeat_FailsIfCommitFails(t *testing.T) {
	pool, table := newPool(t, shared.Get(t).Addr(), nil), newTable()
	s, r := createRecord(t, pool, table)
	executeAtCommit(t, pool, table, fmt.Sprintf("commit_%06d", lastName.Add(1)), "RAISE 'the commit failed'")
	_, err := s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
	require.ErrorContains(t, err, "the commit failed")
	now := fixture.Read(t, s)
	require.Equal(t, r, now)
}

// TestRead_RejectsRowOfOtherProgram checks that Read rejects a row with values that no store writes, such as a
// negative term.
func TestRead_RejectsRowOfOtherProgram(t *testing.T) {
	for _, change := range []string{"term = -1", "seq = -1", "ttl = -1", "epoch = ''"} {
		pool, table := newPool(t, shared.Get(t).Addr(), nil), newTable()
		s, _ := createRecord(t, pool, table)
		execSQL(t, pool, "UPDATE "+table.Sanitize()+" SET "+change)
		_, err := s.Read(fixture.Context(t))
		fixture.RequireUnsuitable(t, err, "use another key")
	}
}

// TestHeartbeat_ResolvesSerializationFailure checks that a heartbeat that the server aborts because of a concurrent
// transaction returns ErrConflict if the record has changed, and succeeds otherwise.
// TestStore_IgnoresPoolOptions tests other isolation levels.
func TestHeartbeat_ResolvesSerializationFailure(t *testing.T) {
	server := shared.Get(t)
	operator := newPool(t, server.Addr(), nil)
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("Changed=%v", changed), func(t *testing.T) {
			table := newTable()
			pool := newPool(t, server.Addr(), withSetting("default_transaction_isolation", "repeatable read"))
			s, r := createRecord(t, pool, table)
			tx, err := operator.Begin(fixture.Context(t))
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			change := `seq = seq` // the server considers the row changed, but the record stays the same
			if changed {
				change = `version = 'another'`
			}
			_, err = tx.Exec(fixture.Context(t), "UPDATE "+table.Sanitize()+" SET "+change)
			require.NoError(t, err)
			result := make(chan error, 1)
			go func() {
				err := errors.New("lock timeout")
				for err != nil && strings.Contains(err.Error(), "lock timeout") { // retry until the transaction is committed
					_, err = s.Heartbeat(context.Background(), r, r)
				}
				result <- err
			}()
			require.Eventually(t, func() bool {
				var waiting int
				err := operator.QueryRow(fixture.Context(t), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&waiting)
				return err == nil && waiting > 0
			}, fixture.Patience, 10*time.Millisecond)
			require.NoError(t, tx.Commit(fixture.Context(t)))
			if err := <-result; changed {
				require.ErrorIs(t, err, changefeed.ErrConflict)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestHeartbeat_RejectsInvalidText checks that a text that the store cannot return unchanged is not written.
func TestHeartbeat_RejectsInvalidText(t *testing.T) {
	s, r := createRecord(t, newPool(t, shared.Get(t).Addr(), nil), newTable())
	for _, id := range []string{"NUL \x00", "not UTF-8 \xff"} {
		next := r
		next.Leader = id
		_, err := s.Heartbeat(fixture.Context(t), r, next)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	}
	fixture.Heartbeat(t, s, r)
}

// TestHeartbeat_ErrorNamesClosedPool checks that the error of a heartbeat states that the pool was
// closed.
func TestHeartbeat_ErrorNamesClosedPool(t *testing.T) {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	s, r := createRecord(t, pool, newTable())
	pool.Close()
	_, err := s.Heartbeat(fixture.Context(t), r, r)
	fixture.RequireUnsuitable(t, err, "closed pool")
}
