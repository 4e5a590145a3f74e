package rethinkdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// kind is what the server means by an error. The driver hands on little but the text.
type kind int

const (
	other kind = iota
	noDatabase
	noTable
	exists    // of a database or table that was to be made
	duplicate // of a document that was to be made
	ambiguous // several tables have one name
	forbidden
	credentials
	impossible // the query fits nothing of what there is
)

func kindOf(err error) kind {
	var auth r.RQLAuthError
	var availability r.RQLOpFailedError
	var unknown r.RQLOpIndeterminateError
	var row rowError
	text := ""
	if err != nil {
		// The text goes on with the query, which has the user's own words in it.
		text, _, _ = strings.Cut(err.Error(), " in:\n")
	}
	has := func(parts ...string) bool {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
	server := errors.As(err, &availability) || errors.As(err, &unknown) || isRuntime(err)
	switch {
	case err == nil:
		return other
	case errors.As(err, &auth):
		return credentials
	case errors.As(err, &row) && has("Duplicate primary key"):
		return duplicate
	case !server:
		return other
	case has("does not have the required", "permission"):
		return forbidden
	case has("ambiguous; there are multiple"):
		return ambiguous
	case has("Database `", "already exists"), has("Table `", "already exists"):
		return exists
	case has("Database `", "does not exist"):
		return noDatabase
	case has("Table `", "does not exist"):
		return noTable
	case errors.As(err, new(r.RQLQueryLogicError)):
		return impossible
	}
	return other
}

// isRuntime says that the server has refused a query, for whatever reason.
func isRuntime(err error) bool {
	return errors.As(err, new(r.RQLRuntimeError)) || errors.As(err, new(r.RQLQueryLogicError)) ||
		errors.As(err, new(r.RQLNonExistenceError))
}

// help is what the user can do, where repeating does not help.
var help = map[kind]string{
	forbidden:   "grant the session's user read and write on the table, and config on the database if the store must create the table",
	credentials: "correct the user and password of the session",
	impossible:  "the table or the document does not have the layout that the package documentation describes",
}

// explain says what was tried when err happened, and wraps what there is to ask for. ctx
// is the caller's.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	k := kindOf(err)
	if done := ctx.Err(); done != nil && !errors.Is(err, done) { // the driver has an error of its own for that
		err = fmt.Errorf("%w: %w", done, err)
	}
	err = fmt.Errorf("rethinkdb: %s: %w", what, err)
	switch k {
	case noDatabase, noTable:
		return fmt.Errorf("%w: %w", changefeed.ErrNoRecord, err)
	}
	if text, ok := help[k]; ok {
		return fmt.Errorf("%w: %w: %s", changefeed.ErrUnsuitable, err, text)
	}
	return err
}

// errBusy: somebody else is changing the same tables.
var errBusy = errors.New("the tables are being changed")

// unavailable says that a table has no primary replica, or not enough of the others, at
// the time; or that it is being changed.
func unavailable(err error) bool {
	return errors.Is(err, errBusy) || kindOf(err) == other &&
		(errors.As(err, new(r.RQLOpFailedError)) || errors.As(err, new(r.RQLOpIndeterminateError)))
}
