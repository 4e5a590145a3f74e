package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/go-leaderelection/leaderelection/sqlfence"
)

// FenceTx adapts a transaction of pgx to the interface that [sqlfence.Fence.Guard] requires.
func FenceTx(tx pgx.Tx) sqlfence.Tx { return fenceTx{tx} }

type fenceTx struct{ tx pgx.Tx }

func (t fenceTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return rowsAffected(tag.RowsAffected()), err
}

// rowsAffected is a [sql.Result] that contains only the number of rows.
type rowsAffected int64

func (rowsAffected) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

func (n rowsAffected) RowsAffected() (int64, error) { return int64(n), nil }
