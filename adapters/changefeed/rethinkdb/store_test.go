package rethinkdb_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/rethinkdb"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, newFactory(t)) }

func TestElections(t *testing.T) { storetest.RunElection(t, newFactory(t)) }

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	addr := serverAddr(t)
	table := newTable(t, connect(t, addr, nil))
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, addr)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

// TestNew_InvalidArguments fails if New accepts an argument that cannot be used.
func TestNew_InvalidArguments(t *testing.T) {
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

// TestClose_KeepsSession fails if the store closes the session.
func TestClose_KeepsSession(t *testing.T) {
	session := connect(t, serverAddr(t), nil)
	s, rec := createRecord(t, session, newTable(t, session))
	subscribe(t, s, rec)
	require.NoError(t, s.Close())
	require.True(t, session.IsConnected())
	require.NoError(t, r.Expr(1).Exec(session))
}

// TestStore_UnresponsiveServer fails if a call, a feed or Close waits for a driver that reconnects to a
// server which does not respond: the driver blocks although the context of the query is done.
func TestStore_UnresponsiveServer(t *testing.T) {
	addr := serverAddr(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := createRecord(t, operator, table)
	p := newProxy(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(2*time.Second))
	f := subscribe(t, s, rec)
	p.Cut()
	p.Drop()
	for range 40 { // more calls than the store runs in the background
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		start := time.Now()
		_, err := s.Heartbeat(ctx, rec, nextRecord(rec))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireUnknownOutcome(t, err)
		require.Less(t, time.Since(start), 10*time.Second)
	}
	awaitFeedError(t, f)
	p.Heal()
	require.Eventually(t, func() bool { // An earlier heartbeat may have been applied.
		now, err := s.Read(testContext(t))
		if err == nil {
			rec = now
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	rec = heartbeat(t, writer, rec)
	subscribe(t, s, rec)

	other := newStore(t, connect(t, p.Addr(), nil), table)
	f = subscribe(t, other, rec)
	p.Cut()
	p.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, _ = other.Read(ctx)
	start := time.Now()
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	took := time.Since(start)
	p.Heal() // Otherwise Close of the session would wait.
	require.Less(t, took, 8*time.Second, "each Close takes at most two seconds, and longer on a busy machine")
}
