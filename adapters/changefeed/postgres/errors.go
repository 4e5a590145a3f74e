package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// transactionMode is the advice for errors that a connection pooler in transaction mode causes: prepared statements
// are missing or exist already, or notifications are not delivered.
const transactionMode = "use the option WithPoll of the store or the parameter poll of its address, or no connection pooler in transaction mode"

// adviceByCode contains advice on how to resolve permanent failures. The keys are SQLSTATEs.
var adviceByCode = map[string]string{
	"42501": "grant SELECT, INSERT and UPDATE on the table, and CREATE on its schema if the store must create it",
	"3F000": "create the schema or use another",
	"3D000": "create the database or use another",
	"28000": "let the pool's user log in",
	"28P01": "correct the password of the pool",
	"42703": "the table lacks a column; the package documentation describes the layout",
	"42804": "a column has another type; the package documentation describes the layout",
	"42883": "a column has another type; the package documentation describes the layout",
	"42P10": "the column election needs a unique index",
	"42809": "the name must refer to a table",
	"23502": "additional columns must have defaults or permit NULL",
	"23514": "a CHECK of the table rejects the record",
	"22001": "a column is too short for the record; the columns are of type text",
	"26000": transactionMode,
	"42P05": transactionMode,
	"22P05": "the encoding of the database lacks a character; use UTF8",
}

const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	undefinedTable       = "42P01"
	duplicateTable       = "42P07"
	duplicateObject      = "42710"
	uniqueViolation      = "23505"
)

// errorCode returns the SQLSTATE of an error of the server, and "" for any other error.
func errorCode(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func meaningOf(err error) error {
	if errors.Is(err, puddle.ErrClosedPool) {
		return fmt.Errorf("%w: %w: the pool was closed", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	}
	if advice, ok := adviceByCode[errorCode(err)]; ok {
		return fmt.Errorf("%w: %s", changefeed.ErrUnsuitable, advice)
	}
	return nil
}
