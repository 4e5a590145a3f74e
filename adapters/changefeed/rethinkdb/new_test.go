package rethinkdb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
)

// TestNewRefuses: arguments that cannot be used are refused before anything is asked.
func TestNewRefuses(t *testing.T) {
	var none *r.Session
	session := &r.Session{}
	for name, f := range map[string]func() (*rethinkdb.Store, error){
		"Nil":      func() (*rethinkdb.Store, error) { return rethinkdb.New(nil, "d", "t", "k") },
		"TypedNil": func() (*rethinkdb.Store, error) { return rethinkdb.New(none, "d", "t", "k") },
		"Database": func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d.d", "t", "k") },
		"System":   func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "rethinkdb", "t", "k") },
		"Table":    func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d", "", "k") },
		"NoKey":    func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d", "t", "") },
		"NUL":      func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d", "t", "a\x00b") },
		"Long":     func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d", "t", strings.Repeat("k", 128)) },
		"Option":   func() (*rethinkdb.Store, error) { return rethinkdb.New(session, "d", "t", "k", nil) },
		"Quiet": func() (*rethinkdb.Store, error) {
			return rethinkdb.New(session, "d", "t", "k", rethinkdb.WithQuiet(0))
		},
	} {
		s, err := f()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
		require.Nil(t, s, name)
	}
}
