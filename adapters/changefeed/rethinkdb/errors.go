package rethinkdb

import (
	"errors"
	"fmt"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// errorKind is the meaning of an error of the server. It is determined by the text of the error, because the driver has
// no types for most errors.
type errorKind int

const (
	otherError errorKind = iota
	noDatabase
	noTable
	alreadyExists     // A database or table exists already.
	duplicateDocument // A document exists already.
	ambiguousTable    // Several tables have the same name.
	permissionDenied
	invalidCredentials
	invalidQuery // The table or the document does not have the expected layout.
)

func errorKindOf(err error) errorKind {
	var auth r.RQLAuthError
	var unavailable r.RQLOpFailedError
	var indeterminate r.RQLOpIndeterminateError
	var document documentError
	text := ""
	if err != nil {
		// Remove the query, which follows the text and contains texts of the user.
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
	fromServer := errors.As(err, &unavailable) || errors.As(err, &indeterminate) || isRuntimeError(err)
	switch {
	case err == nil:
		return otherError
	case errors.As(err, &auth):
		return invalidCredentials
	case errors.As(err, &document) && has("Duplicate primary key"):
		return duplicateDocument
	case !fromServer:
		return otherError
	case has("does not have the required", "permission"):
		return permissionDenied
	case has("ambiguous; there are multiple"):
		return ambiguousTable
	case has("Database `", "already exists"), has("Table `", "already exists"):
		return alreadyExists
	case has("Database `", "does not exist"):
		return noDatabase
	case has("Table `", "does not exist"):
		return noTable
	case errors.As(err, new(r.RQLQueryLogicError)):
		return invalidQuery
	}
	return otherError
}

// isRuntimeError reports whether the server has rejected a query.
func isRuntimeError(err error) bool {
	return errors.As(err, new(r.RQLRuntimeError)) || errors.As(err, new(r.RQLQueryLogicError)) ||
		errors.As(err, new(r.RQLNonExistenceError))
}

// adviceByKind contains advice on how to resolve permanent failures. The keys are the kinds of the errors.
var adviceByKind = map[errorKind]string{
	permissionDenied:   "grant the session's user read and write on the table, and config on the database if the store must create the table",
	invalidCredentials: "correct the user and password of the session",
	invalidQuery:       "the table or the document does not have the layout that the package documentation describes",
}

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func meaningOf(err error) error {
	kind := errorKindOf(err)
	if kind == noDatabase || kind == noTable {
		return changefeed.ErrNoRecord
	}
	if advice, ok := adviceByKind[kind]; ok {
		return fmt.Errorf("%w: %s", changefeed.ErrUnsuitable, advice)
	}
	return nil
}

// errBusy is returned if another client keeps changing the same tables.
var errBusy = errors.New("another client is changing the tables")

// isUnavailable reports whether a table currently has too few replicas or no primary replica, or is
// being changed.
func isUnavailable(err error) bool {
	return errors.Is(err, errBusy) || errorKindOf(err) == otherError &&
		(errors.As(err, new(r.RQLOpFailedError)) || errors.As(err, new(r.RQLOpIndeterminateError)))
}
