package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

// The transaction is committed only if no later leader has begun a transaction.
func ExampleFence_Guard() {
	fence, err := sqlfence.NewFence(sqlfence.MySQL, "report", sqlfence.WithTable("app.fence"))
	if err != nil {
		fmt.Println(err)
		return
	}
	count := func(ctx context.Context, db *sql.DB, leadership *leaderelection.Leadership) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Guard(ctx, tx, leadership); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT reports FROM total").Scan(&n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE total SET reports = ?", n+1); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = count // a program calls count only while it leads
}
