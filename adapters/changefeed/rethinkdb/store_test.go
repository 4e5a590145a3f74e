package rethinkdb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestStore_SatisfiesContract(t *testing.T) { storetest.Run(t, newFactory(t)) }

func TestElections_SatisfyContract(t *testing.T) { storetest.RunElection(t, newFactory(t)) }

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil session or an empty key.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	var none *r.Session
	session := &r.Session{}
	for name, f := range map[string]func() (*rethinkdb.Store, error){
		"Nil":      func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(nil, "d", "t", "k") },
		"TypedNil": func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(none, "d", "t", "k") },
		"Database": func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "d.d", "t", "k") },
		"System":   func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "rethinkdb", "t", "k") },
		"Table":    func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "d", "", "k") },
		"NoKey":    func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "d", "t", "") },
		"NUL":      func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "d", "t", "a\x00b") },
		"Long": func() (*rethinkdb.Store, error) {
			return rethinkdb.NewStore(session, "d", "t", strings.Repeat("k", 128))
		},
		"Option": func() (*rethinkdb.Store, error) { return rethinkdb.NewStore(session, "d", "t", "k", nil) },
		"Quiet": func() (*rethinkdb.Store, error) {
			return rethinkdb.NewStore(session, "d", "t", "k", rethinkdb.WithQuiet(0))
		},
		"Server": func() (*rethinkdb.Store, error) {
			return rethinkdb.NewStore(session, "d", "t", "k", rethinkdb.WithServerNames())
		},
	} {
		s, err := f()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
		require.Nil(t, s, name)
	}
}

// TestClose_KeepsSessionOpen checks that Close of the store does not close the session.
func TestClose_KeepsSessionOpen(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s, rec := createRecord(t, session, newTable(t, session))
	fixture.SubscribeTo(t, s, rec)
	require.NoError(t, s.Close())
	require.True(t, session.IsConnected())
	require.NoError(t, r.Expr(1).Exec(session))
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "gopkg.in/rethinkdb/rethinkdb-go.v6")
}
