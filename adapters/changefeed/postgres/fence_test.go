//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

func newFencedDB(t *testing.T) *fixture.FencedDB {
	pool := newPool(t, shared.Get(t).Addr(), func(c *pgxpool.Config) { c.MaxConns = 8 })
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	execSQL(t, pool, `DROP TABLE IF EXISTS fences, amounts, entries`)
	execSQL(t, pool, `CREATE TABLE fences (resource text PRIMARY KEY, token bigint NOT NULL)`)
	return &fixture.FencedDB{DB: db, Dialect: sqlfence.PostgreSQL, Table: "public.fences", MayRepeat: func(err error) bool {
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "40001"
	}}
}

func TestFence_PreventsLostUpdates(t *testing.T) { fixture.RunNoLostUpdate(t, newFencedDB(t)) }

func TestFence_ElectionsDoNotWaitForEachOther(t *testing.T) {
	fixture.RunTwoElections(t, newFencedDB(t))
}

// TestFence_GuardRejectsSmallerTokenAndEndedGrant checks Guard in transactions of database/sql and of
// pgx.
func TestFence_GuardRejectsSmallerTokenAndEndedGrant(t *testing.T) {
	db := newFencedDB(t)
	fixture.RunGuard(t, db)
	guard := func(token int64) error {
		return pgx.BeginFunc(fixture.Context(t), newPool(t, shared.Get(t).Addr(), nil), func(tx pgx.Tx) error {
			return db.NewFence(t, "pgx").Guard(context.Background(), postgres.FenceTx(tx), &fixture.Holder{Number: token})
		})
	}
	require.NoError(t, guard(6))
	require.ErrorIs(t, guard(5), sqlfence.ErrFenced)
}
