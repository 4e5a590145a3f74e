//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

// holder is a grant that lasts until err is set.
type holder struct {
	token int64
	err   error
}

func (h *holder) Token() int64 { return h.token }
func (h *holder) Err() error   { return h.err }

// fenced is a table with an amount, which holders increase by what they have read and one more.
type fenced struct {
	*testing.T
	db    *sql.DB
	fence *sqlfence.Fence
}

func newFenced(t *testing.T) *fenced {
	pool := newPool(t, shared.Get(t).Addr(), nil)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	execSQL(t, pool, `DROP TABLE IF EXISTS fences, amounts`)
	execSQL(t, pool, `CREATE TABLE fences (resource text PRIMARY KEY, token bigint NOT NULL)`)
	execSQL(t, pool, `CREATE TABLE amounts (amount int); INSERT INTO amounts VALUES (0)`)
	f, err := sqlfence.NewFence(sqlfence.PostgreSQL, "amounts", sqlfence.WithTable("public.fences"))
	require.NoError(t, err)
	return &fenced{t, db, f}
}

// add is the transaction of a holder. It calls pause before each of its four steps.
func (f *fenced) add(level sql.IsolationLevel, h *holder, pause func(step int)) error {
	ctx := fixture.Context(f)
	tx, err := f.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	require.NoError(f, err)
	defer tx.Rollback()
	var amount int
	for step, do := range []func() error{
		func() error { return f.fence.Guard(ctx, tx, h) },
		func() error { return tx.QueryRowContext(ctx, "SELECT amount FROM amounts").Scan(&amount) },
		func() error { _, err := tx.ExecContext(ctx, "UPDATE amounts SET amount = $1", amount+1); return err },
		tx.Commit,
	} {
		pause(step)
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func isSerializationFailure(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "40001"
}

// TestFence_NoLostUpdate pauses a former leader before each statement of its transaction, while the next
// leader executes a transaction. It fails if one of the updates is lost although both were committed, or if the
// former leader commits a transaction that has begun after that of the next one.
func TestFence_NoLostUpdate(t *testing.T) {
	f := newFenced(t)
	token, committed := int64(0), 0
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for paused := range 4 {
			former, next := &holder{token: token + 1}, &holder{token: token + 2}
			token += 2
			var running sync.WaitGroup
			began := make(chan struct{})
			err := f.add(level, former, func(step int) {
				if step != paused {
					return
				}
				running.Go(func() {
					once := sync.OnceFunc(func() { close(began) })
					err := f.add(level, next, func(step int) {
						if step == 0 {
							once()
						}
					})
					for isSerializationFailure(err) { // it has waited for the former leader
						err = f.add(level, next, func(int) {})
					}
					require.NoError(t, err, "the next leader, %v, pause %d", level, paused)
				})
				<-began
				if paused == 0 {
					running.Wait() // otherwise the former leader holds the lock
				}
			})
			running.Wait()
			committed++
			switch {
			case paused == 0 && !isSerializationFailure(err):
				require.ErrorIs(t, err, sqlfence.ErrFenced, "the former leader, %v", level)
			case paused > 0:
				require.NoError(t, err, "the former leader, %v, pause %d", level, paused)
				committed++
			}
			var amount int
			require.NoError(t, f.db.QueryRow("SELECT amount FROM amounts").Scan(&amount))
			require.Equal(t, committed, amount, "an update was lost: %v, pause %d", level, paused)
		}
	}
}

// TestFence_Guard fails if a fence accepts a smaller token or a grant that has ended, rejects the same token, or
// confuses two resources.
func TestFence_Guard(t *testing.T) {
	f := newFenced(t)
	guard := func(fence *sqlfence.Fence, h *holder) error {
		tx, err := f.db.Begin()
		require.NoError(t, err)
		defer tx.Commit()
		return fence.Guard(fixture.Context(t), tx, h)
	}
	require.NoError(t, guard(f.fence, &holder{token: 5}))
	require.NoError(t, guard(f.fence, &holder{token: 5}))
	require.ErrorIs(t, guard(f.fence, &holder{token: 4}), sqlfence.ErrFenced)
	require.NoError(t, guard(f.fence, &holder{token: 5}), "a rejected transaction changes nothing")
	ended := errors.New("ended")
	require.ErrorIs(t, guard(f.fence, &holder{token: 9, err: ended}), ended)
	other, err := sqlfence.NewFence(sqlfence.PostgreSQL, "another", sqlfence.WithTable("fences"))
	require.NoError(t, err)
	require.NoError(t, guard(other, &holder{token: 1}))

	pool := newPool(t, shared.Get(t).Addr(), nil)
	err = pgx.BeginFunc(fixture.Context(t), pool, func(tx pgx.Tx) error {
		require.NoError(t, f.fence.Guard(context.Background(), postgres.FenceTx(tx), &holder{token: 6}))
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, guard(f.fence, &holder{token: 5}), sqlfence.ErrFenced)
}

func TestFence_Invalid(t *testing.T) {
	for _, opts := range [][]sqlfence.Option{{sqlfence.WithTable("")}, {sqlfence.WithTable("a b")}, {sqlfence.WithTable("a;--")}, {nil}} {
		_, err := sqlfence.NewFence(sqlfence.PostgreSQL, "x", opts...)
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
	}
	_, err := sqlfence.NewFence(0, "x")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = sqlfence.NewFence(sqlfence.PostgreSQL, "")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}
