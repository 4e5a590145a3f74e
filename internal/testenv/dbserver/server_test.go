//go:build unix

package dbserver_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sharedServers() map[string]*dbserver.Shared {
	return map[string]*dbserver.Shared{
		"Postgres": {Start: func() (*dbserver.Server, error) { return dbserver.Postgres() }},
		"MariaDB":  {Start: func() (*dbserver.Server, error) { return dbserver.MariaDB() }},
		"Galera":   {Start: func() (*dbserver.Server, error) { return dbserver.Galera() }},
		"Redis":    {Start: func() (*dbserver.Server, error) { return dbserver.Redis() }},
		"NATS":     {Start: func() (*dbserver.Server, error) { return dbserver.NATS() }},
	}
}

// TestServer_ListensOnSamePortAfterKillAndStart checks that a database server does not listen after Kill, and
// listens on the same port after Start and after Restart.
func TestServer_ListensOnSamePortAfterKillAndStart(t *testing.T) {
	for name, shared := range sharedServers() {
		t.Run(name, func(t *testing.T) {
			s := shared.Get(t)
			dial := func() error {
				conn, err := net.Dial("tcp", s.Addr())
				if err == nil {
					conn.Close()
				}
				return err
			}
			require.NoError(t, dial())
			require.NoError(t, s.Kill())
			require.Error(t, dial())
			require.NoError(t, s.Start())
			require.NoError(t, dial())
			require.NoError(t, s.Restart())
			require.NoError(t, dial())
			require.NoError(t, s.Close())
		})
	}
}

// TestShared_SkipsOrFailsTestIfDatabaseIsMissing checks that Get skips a test whose database is not installed, and
// fails the test if ZKTEST_REAL requires the database.
func TestShared_SkipsOrFailsTestIfDatabaseIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := dbserver.Redis()
	require.ErrorIs(t, err, dbserver.ErrMissing)
	for value, skips := range map[string]bool{"": true, "required": false} {
		t.Setenv("ZKTEST_REAL", value)
		shared := dbserver.Shared{Start: func() (*dbserver.Server, error) { return nil, dbserver.ErrMissing }}
		outcome := &testOutcome{TB: t}
		shared.Get(outcome)
		require.Equal(t, skips, outcome.skipped)
		require.Equal(t, !skips, outcome.failed)
	}
}

// testOutcome records whether a test was skipped or has failed.
type testOutcome struct {
	testing.TB
	skipped, failed bool
}

func (o *testOutcome) Helper()               {}
func (o *testOutcome) Skipf(string, ...any)  { o.skipped = true }
func (o *testOutcome) Fatalf(string, ...any) { o.failed = true }
