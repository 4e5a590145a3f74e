//go:build unix

package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestGalera_SatisfiesContracts checks that stores, elections and fences satisfy their contracts when their
// connections use both nodes of a Galera cluster. In the case ConcurrentHeartbeats, both nodes execute a write at the
// same time, and only one of the writes may be committed.
func TestGalera_SatisfiesContracts(t *testing.T) {
	first := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Galera() })
	second := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.GaleraNode(first) })
	causal := withSetting("wsrep_sync_wait", "7")
	backend := func(t testing.TB) *storetest.Backend {
		table, stores := newTable(), 0
		operator := connect(t, first.Addr(), causal)
		return &storetest.Backend{
			New: func(t testing.TB) changefeed.Store {
				stores++
				server := []*dbserver.Server{first, second}[stores%2]
				s, err := mysql.NewStore(connect(t, server.Addr(), causal), table, "an election", mysql.WithPoll(pollInterval))
				require.NoError(t, err)
				return s
			},
			Lose:     func(t testing.TB) { execSQL(t, operator, "DELETE FROM "+quoteTable(table)) },
			Patience: fixture.Patience,
		}
	}
	storetest.Run(t, backend)
	fixture.RunElections(t, backend, backend)
	t.Run("Fence", func(t *testing.T) {
		var both alternating
		for _, server := range []*dbserver.Server{first, second} {
			both.connectors = append(both.connectors, newConnector(t, server.Addr(), causal))
		}
		db := sql.OpenDB(&both)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		db.SetMaxIdleConns(-1) // Close idle connections, so that each transaction uses a new one.
		fixture.RunNoLostUpdate(t, newFencedDB(t, db))
	})
}

// alternating is a [driver.Connector] that connects to several servers in turn.
type alternating struct {
	connectors []driver.Connector
	n          atomic.Int64
}

func (a *alternating) Connect(ctx context.Context) (driver.Conn, error) {
	return a.connectors[int(a.n.Add(1))%len(a.connectors)].Connect(ctx)
}

func (a *alternating) Driver() driver.Driver { return a.connectors[0].Driver() }
