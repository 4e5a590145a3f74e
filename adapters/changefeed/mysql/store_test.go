//go:build unix

package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore_SatisfiesContract(t *testing.T) { storetest.Run(t, newFactory(shared.Get, nil)) }

// TestStore_IgnoresConnectionSettings checks that the store satisfies the contract of stores whatever the
// settings of the connections are.
func TestStore_IgnoresConnectionSettings(t *testing.T) {
	for name, change := range map[string]func(*driver.Config){
		"Serializable":  withSetting("tx_isolation", "'SERIALIZABLE'"),
		"ReadCommitted": withSetting("tx_isolation", "'READ-COMMITTED'"),
		"NotStrict":     withSetting("sql_mode", "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"),
		"Interpolated":  func(c *driver.Config) { c.InterpolateParams = true },
		"FoundRows":     func(c *driver.Config) { c.ClientFoundRows = true },
		"Latin1": func(c *driver.Config) {
			latin1, err := driver.ParseDSN("tcp(" + c.Addr + ")/test?charset=latin1&collation=latin1_swedish_ci&parseTime=true&loc=Asia%2FTokyo")
			require.NoError(t, err)
			latin1.User = c.User
			*c = *latin1
		},
	} {
		t.Run(name, func(t *testing.T) { fixture.RunSQLCases(t, newFactory(shared.Get, change)) })
	}
}

// TestElections_SatisfyContract tests the contract of elections. The cases run in parallel; the case that kills
// its server uses a separate server.
func TestElections_SatisfyContract(t *testing.T) {
	separate := func(t testing.TB) *dbserver.Server { return startServer(t) }
	fixture.RunElections(t, newFactory(shared.Get, nil), newFactory(separate, nil))
}

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the server has stopped when the
// next leader starts, even when the server was killed in between.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	server, table := shared.Get(t), newTable()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, server.Addr())
		return storetest.Client{Store: newStore(t, connect(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal}
	}, func() { require.NoError(t, server.Restart()) })
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments,
// such as a nil database or an empty key.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	db := connect(t, "127.0.0.1:1", nil)
	for name, create := range map[string]func() (*mysql.Store, error){
		"NilDB":      func() (*mysql.Store, error) { return mysql.NewStore(nil, "elections", "k") },
		"EmptyTable": func() (*mysql.Store, error) { return mysql.NewStore(db, "", "k") },
		"NoTable":    func() (*mysql.Store, error) { return mysql.NewStore(db, "app.", "k") },
		"ThreeParts": func() (*mysql.Store, error) { return mysql.NewStore(db, "a.b.c", "k") },
		"NotASCII":   func() (*mysql.Store, error) { return mysql.NewStore(db, "wähler", "k") },
		"LongTable":  func() (*mysql.Store, error) { return mysql.NewStore(db, strings.Repeat("x", 65), "k") },
		"EmptyKey":   func() (*mysql.Store, error) { return mysql.NewStore(db, "elections", "") },
		"LongKey":    func() (*mysql.Store, error) { return mysql.NewStore(db, "elections", strings.Repeat("x", 256)) },
		"NilOption":  func() (*mysql.Store, error) { return mysql.NewStore(db, "elections", "k", nil) },
		"NoInterval": func() (*mysql.Store, error) { return mysql.NewStore(db, "elections", "k", mysql.WithPoll(0)) },
		"Risk":       func() (*mysql.Store, error) { return mysql.NewStore(db, "elections", "k", mysql.WithRisk("fire")) },
	} {
		_, err := create()
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
	}
	_, err := newStore(t, db, "elections").Changes(t.Context(), "")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestHeartbeat_IsCommittedWithoutAutocommit checks that the store commits a heartbeat before it
// returns, even if the connections do not commit automatically.
func TestHeartbeat_IsCommittedWithoutAutocommit(t *testing.T) {
	server, table := shared.Get(t), newTable()
	other, r := createRecord(t, connect(t, server.Addr(), nil), table)
	s := newStore(t, connect(t, server.Addr(), withSetting("autocommit", "0")), table)
	r = fixture.Heartbeat(t, s, r)
	require.Equal(t, r, fixture.Read(t, other))
}

// TestStore_LimitsWaitForLocksOfOtherClients checks that a request that needs a row or a table that another client
// has locked fails before its context is done: otherwise it would occupy a connection, and continue on the server.
func TestStore_LimitsWaitForLocksOfOtherClients(t *testing.T) {
	for name, lock := range map[string]string{"Row": "UPDATE %t SET term = term + 1", "Table": "LOCK TABLES %t WRITE"} {
		t.Run(name, func(t *testing.T) {
			server, table := shared.Get(t), newTable()
			operator := connect(t, server.Addr(), nil)
			s, r := createRecord(t, connect(t, server.Addr(), nil), table)
			locker, err := operator.Conn(fixture.Context(t))
			require.NoError(t, err)
			for _, statement := range []string{"START TRANSACTION", strings.ReplaceAll(lock, "%t", quoteTable(table))} {
				_, err = locker.ExecContext(fixture.Context(t), statement)
				require.NoError(t, err)
			}
			_, err = s.Heartbeat(fixture.Context(t), r, fixture.Next(r))
			fixture.RequireUnknownOutcome(t, err)
			require.ErrorContains(t, err, "Lock wait timeout exceeded")
			for _, statement := range []string{"ROLLBACK", "UNLOCK TABLES"} {
				_, err = locker.ExecContext(fixture.Context(t), statement)
				require.NoError(t, err)
			}
			require.NoError(t, locker.Close())
			fixture.Heartbeat(t, s, r)
		})
	}
}

// TestStore_RecoversFromUnresponsiveConnection checks that the feed detects that its connection has failed
// silently, that calls return when their contexts are done, that Close does not block, and that the store works
// afterwards.
func TestStore_RecoversFromUnresponsiveConnection(t *testing.T) {
	server, table := shared.Get(t), newTable()
	proxy := dbserver.StartProxy(t, server.Addr())
	open := func(addr string) *mysql.Store { return newStore(t, connect(t, addr, nil), table) }
	s, other := open(proxy.Addr()), open(server.Addr())
	r := fixture.CreateRecord(t, s)
	f := fixture.SubscribeTo(t, s, r)
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.Heartbeat(ctx, r, fixture.Next(r))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), fixture.CloseLimit, "the call does not wait for the driver")
	require.NotErrorIs(t, fixture.AwaitError(t, f), changefeed.ErrClosed)
	blocked := open(proxy.Addr())
	result := make(chan error, 1)
	go func() { _, err := blocked.Read(context.Background()); result <- err }()
	start = time.Now()
	require.NoError(t, blocked.Close())
	require.ErrorIs(t, <-result, changefeed.ErrClosed)
	require.Less(t, time.Since(start), fixture.CloseLimit)
	proxy.Heal()
	require.Eventually(t, func() bool {
		r, err = s.Read(fixture.Context(t))
		return err == nil
	}, fixture.Patience, 10*time.Millisecond)
	fixture.SubscribeTo(t, s, fixture.Heartbeat(t, other, r))
}

// TestHeartbeat_ErrorNamesClosedDB checks that the error of a heartbeat states that the database was
// closed.
func TestHeartbeat_ErrorNamesClosedDB(t *testing.T) {
	db := connect(t, shared.Get(t).Addr(), nil)
	s, r := createRecord(t, db, newTable())
	require.NoError(t, db.Close())
	_, err := s.Heartbeat(fixture.Context(t), r, r)
	fixture.RequireUnsuitable(t, err, "the sql.DB was closed")
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	_, err = s.Read(fixture.Context(t))
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
}

// TestRead_RejectsRowOfOtherProgram checks that Read rejects a row with values that no store writes, such as a
// negative term.
func TestRead_RejectsRowOfOtherProgram(t *testing.T) {
	for _, change := range []string{"term = -1", "seq = -1", "ttl = -1", "epoch = ''"} {
		db, table := connect(t, shared.Get(t).Addr(), nil), newTable()
		s, _ := createRecord(t, db, table)
		execSQL(t, db, "UPDATE "+quoteTable(table)+" SET "+change)
		_, err := s.Read(fixture.Context(t))
		fixture.RequireUnsuitable(t, err, "use another key")
	}
}

// TestStore_DistinguishesSimilarKeys checks that two elections whose keys differ in case or in spaces do not
// share a record.
func TestStore_DistinguishesSimilarKeys(t *testing.T) {
	db, table := connect(t, shared.Get(t).Addr(), nil), newTable()
	for _, key := range []string{"job", "Job", "job ", "jöb"} {
		s, err := mysql.NewStore(db, table, key)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Read(fixture.Context(t))
		require.ErrorIs(t, err, changefeed.ErrNoRecord, key)
		fixture.CreateRecord(t, s)
	}
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "github.com/go-sql-driver/mysql")
}
