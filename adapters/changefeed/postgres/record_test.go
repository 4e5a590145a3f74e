//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

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

// TestCommitWaits: the commit of a heartbeat waits for the disks of the server and of its
// synchronous standbys, whatever the session's setting is. A deferred trigger sees what the
// setting is at the commit.
func TestCommitWaits(t *testing.T) {
	server := shared.Get(t)
	for value, want := range map[string]string{
		"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply",
	} {
		pool, table := newPool(t, server.Addr(), setting("synchronous_commit", value)), newTable()
		s, r := created(t, pool, table)
		name := fmt.Sprintf("commit_%06d", serial.Add(1))
		sql(t, pool, fmt.Sprintf(`CREATE TABLE %[1]s (value text);
			CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN INSERT INTO %[1]s VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER %[1]s AFTER UPDATE ON %[2]s DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION %[1]s()`, name, table.Sanitize()))
		beat(t, s, r)
		var got string
		require.NoError(t, pool.QueryRow(bounded(t), "SELECT value FROM "+name).Scan(&got))
		require.Equal(t, want, got, value)
	}
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

// TestClosedPool: a pool that was closed too early is told as such.
func TestClosedPool(t *testing.T) {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	s, r := created(t, pool, newTable())
	pool.Close()
	_, err := s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "closed pool")
}
