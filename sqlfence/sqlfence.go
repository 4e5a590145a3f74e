// Package sqlfence lets a SQL database reject the transactions of a former leader, or of a former holder of a
// lock, whatever server elects. It needs only database/sql.
//
//	fence, err := sqlfence.NewFence(sqlfence.PostgreSQL, "report") // or sqlfence.MySQL
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := fence.Guard(ctx, tx, leadership); err != nil {
//		return err // for example sqlfence.ErrFenced: another replica leads
//	}
//	// Read and write by tx, and commit.
//
// The tokens are in a table, which the program creates once, on PostgreSQL and on MySQL or MariaDB:
//
//	CREATE TABLE fence (resource text PRIMARY KEY, token bigint NOT NULL);
//
//	CREATE TABLE fence (resource varbinary(255) PRIMARY KEY, token bigint NOT NULL, uses bigint NOT NULL) ENGINE=InnoDB;
//
// # Guarantees
//
// If the transaction of a holder commits, each transaction of a holder with a smaller token was committed before
// that transaction began to read, or is never committed. This holds at each isolation level from READ COMMITTED
// on. The transactions of one resource are executed one after the other, because each locks the row of the
// resource until it ends; transactions of different resources are independent.
//
// On PostgreSQL, at REPEATABLE READ and SERIALIZABLE, a transaction that had to wait for another fails
// with a serialization error (40001), and can be repeated. On MySQL and MariaDB, such a transaction
// reads what the others have committed, at any level. The wait ends with an error after
// innodb_lock_wait_timeout.
//
// # Limits
//
// A transaction that does not call Guard, or reads before it does, is not protected. Neither are reads outside of
// transactions, nor writes to other databases. All programs must compare tokens of the same election or lock: tokens
// of different elections or locks are unrelated.
//
// If a statement fails, roll back. On MySQL and MariaDB, the server may have ended the transaction, and would
// execute later statements without a transaction. Statements that commit implicitly there, such as CREATE TABLE,
// end the protection as well. All tables must have the engine InnoDB. The column uses changes with each
// transaction, so that of concurrent transactions on different nodes of Galera only one is committed: Guard does
// not wait for transactions on other nodes, and the transaction that commits later fails with error 1213, and
// can be repeated.
package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-leaderelection/leaderelection"
)

// ErrFenced is returned by [Fence.Guard] if a later holder has called Guard. The transaction must be rolled back.
var ErrFenced = errors.New("sqlfence: a later holder has registered its token")

// Tx is a transaction: [*sql.Tx], or an adapter for another driver, such as FenceTx of the package
// adapters/changefeed/postgres for pgx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Grant is a leadership, a hold of a lock, or another grant of this library.
type Grant interface {
	// Token returns the fencing token, which must be greater than the tokens of all earlier holders.
	Token() int64
	// Err returns nil while the grant is valid, and then the reason why it has ended.
	Err() error
}

// Dialect is the SQL dialect of a database.
type Dialect int

// The dialects that NewFence accepts.
const (
	// PostgreSQL is the dialect of PostgreSQL 9.5 or later.
	PostgreSQL Dialect = iota + 1
	// MySQL is the dialect of MariaDB 10.6 or later, which the tests use, and of MySQL 8.0 or later.
	MySQL
)

// Fence rejects the transactions of former holders of one resource. Its methods may be called from any goroutine.
type Fence struct {
	resource   string
	statements []statement
}

// statement is one SQL statement of Guard. Guard executes all statements of its dialect in order; if the last one
// changes no row, a greater token is registered.
type statement struct {
	text      string
	arguments func(resource string, token int64) []any
}

// statementsOf returns the statements for a table. They lock the row of the resource even if a greater token
// is registered, and do not depend on what the driver counts as a changed row.
var statementsOf = map[Dialect]func(table string) []statement{
	PostgreSQL: func(table string) []statement {
		return []statement{{
			"INSERT INTO " + table + " AS f (resource, token) VALUES ($1, $2)" +
				" ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token",
			func(resource string, token int64) []any { return []any{resource, token} },
		}}
	},
	MySQL: func(table string) []statement {
		return []statement{
			{
				"INSERT INTO " + table + " (resource, token, uses) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE uses = uses",
				func(resource string, token int64) []any { return []any{[]byte(resource), token} },
			},
			{
				"UPDATE " + table + " SET token = ?, uses = uses + 1 WHERE resource = ? AND token <= ?",
				func(resource string, token int64) []any { return []any{token, []byte(resource), token} },
			},
		}
	},
}

// Option is an option of [NewFence].
type Option interface{ apply(*settings) }

type settings struct{ table string }

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// WithTable sets the name of the table, which may begin with a schema. The default is "fence".
func WithTable(name string) Option { return optionFunc(func(s *settings) { s.table = name }) }

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewFence returns the fence of a resource: of the data that the holders of one election or lock write. It
// sends no statement. Errors: [leaderelection.ErrInvalid].
func NewFence(dialect Dialect, resource string, opts ...Option) (*Fence, error) {
	s := settings{table: "fence"}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("sqlfence: %w: an option is nil", leaderelection.ErrInvalid)
		}
		o.apply(&s)
	}
	switch {
	case statementsOf[dialect] == nil:
		return nil, fmt.Errorf("sqlfence: %w: dialect %d is unknown", leaderelection.ErrInvalid, dialect)
	case resource == "":
		return nil, fmt.Errorf("sqlfence: %w: the resource has no name", leaderelection.ErrInvalid)
	case !identifier.MatchString(s.table):
		return nil, fmt.Errorf("sqlfence: %w: WithTable(%q): must consist of letters, digits and underscores", leaderelection.ErrInvalid, s.table)
	}
	return &Fence{resource, statementsOf[dialect](s.table)}, nil
}

// Guard registers the token of a grant in a transaction, which must not have read anything before, and blocks
// until earlier transactions of the resource have ended. It returns [ErrFenced] if a greater token is registered,
// and the reason of [Grant.Err] if the grant has ended. Otherwise the transaction can commit. It can still commit
// after the grant has ended, as long as Guard of a later holder has not returned.
func (f *Fence) Guard(ctx context.Context, tx Tx, g Grant) error {
	err := g.Err()
	if err == nil {
		err = f.register(ctx, tx, g.Token())
	}
	if err == nil {
		err = g.Err() // the grant may have ended during the wait
	}
	if err != nil {
		return fmt.Errorf("guard the transaction for %q: %w", f.resource, err)
	}
	return nil
}

func (f *Fence) register(ctx context.Context, tx Tx, token int64) error {
	var rows int64
	for _, s := range f.statements {
		result, err := tx.ExecContext(ctx, s.text, s.arguments(f.resource, token)...)
		if err == nil {
			rows, err = result.RowsAffected()
		}
		if err != nil {
			return err
		}
	}
	if rows == 0 {
		return fmt.Errorf("%w: token %d is smaller", ErrFenced, token)
	}
	return nil
}
