package rethinkdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestStart_RejectsOtherPrimaryKey checks that Start rejects a table whose primary key is not id.
func TestStart_RejectsOtherPrimaryKey(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	_, _ = r.DBCreate(database).RunWrite(session)
	table := newTable(t, session)
	execWrite(t, session, r.DB(database).TableCreate(table, r.TableCreateOpts{PrimaryKey: "other"}))
	fixture.RequireUnsuitable(t, newStore(t, session, table).Start(fixture.Context(t)), "primary key")
}

// TestStart_ReportsMissingPermission checks that Start reports a missing permission, and that the
// documented permissions are sufficient.
func TestStart_ReportsMissingPermission(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	s, rec := createRecord(t, operator, table)
	for name, c := range map[string]struct {
		permissions map[string]any
		sufficient  bool
	}{
		"None":      {map[string]any{}, false},
		"Read":      {map[string]any{"read": true}, false},
		"ReadWrite": {map[string]any{"read": true, "write": true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			user := newName("user")
			users := r.DB("rethinkdb").Table("users")
			execWrite(t, operator, users.Insert(map[string]any{"id": user, "password": "secret"}))
			t.Cleanup(func() { execWrite(t, operator, users.Get(user).Delete()) })
			require.NoError(t, r.DB(database).Table(table).Grant(user, c.permissions).Exec(operator))
			session := connect(t, addr, func(o *r.ConnectOpts) { o.Username, o.Password = user, "secret" })
			limited := newStore(t, session, table)
			err := limited.Start(fixture.Context(t))
			if c.sufficient {
				require.NoError(t, err)
				require.NoError(t, limited.Create(fixture.Context(t), fixture.HeldRecord()))
				fixture.SubscribeTo(t, limited, rec)
				rec = fixture.Heartbeat(t, limited, rec)
			} else {
				fixture.RequireUnsuitable(t, err, "grant")
			}
			another := newStore(t, session, newTable(t, operator))
			require.ErrorIs(t, another.Create(fixture.Context(t), fixture.HeldRecord()), changefeed.ErrUnsuitable)
		})
	}
	now := fixture.Read(t, s)
	require.Equal(t, rec.Version, now.Version)
}
