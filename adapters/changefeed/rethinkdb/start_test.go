package rethinkdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestPrimaryKey: a table with another is refused.
func TestPrimaryKey(t *testing.T) {
	session := connect(t, server(t), nil)
	_, _ = r.DBCreate(database).RunWrite(session)
	table := newTable(t, session)
	exec1(t, session, r.DB(database).TableCreate(table, r.TableCreateOpts{PrimaryKey: "other"}))
	err := newStore(t, session, table).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "primary key")
}

// TestPermissions: what the user lacks is told.
func TestPermissions(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	s, rec := created(t, operator, table)
	for name, c := range map[string]struct {
		rights map[string]any
		good   bool
	}{
		"None":      {map[string]any{}, false},
		"Read":      {map[string]any{"read": true}, false},
		"ReadWrite": {map[string]any{"read": true, "write": true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			user := newName("user")
			users := r.DB("rethinkdb").Table("users")
			exec1(t, operator, users.Insert(map[string]any{"id": user, "password": "secret"}))
			t.Cleanup(func() { exec1(t, operator, users.Get(user).Delete()) })
			require.NoError(t, r.DB(database).Table(table).Grant(user, c.rights).Exec(operator))
			session := connect(t, addr, func(o *r.ConnectOpts) { o.Username, o.Password = user, "secret" })
			limited := newStore(t, session, table)
			err := limited.Start(bounded(t))
			if c.good {
				require.NoError(t, err)
				require.NoError(t, limited.Create(bounded(t), blank))
				follow(t, limited, rec)
				rec = beat(t, limited, rec)
			} else {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable)
				require.ErrorContains(t, err, "grant")
			}
			another := newStore(t, session, newTable(t, operator))
			require.ErrorIs(t, another.Create(bounded(t), blank), changefeed.ErrUnsuitable)
		})
	}
	now, err := s.Read(bounded(t))
	require.NoError(t, err)
	require.Equal(t, rec.Version, now.Version)
}
