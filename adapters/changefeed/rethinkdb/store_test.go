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

func TestStore(t *testing.T) { storetest.Run(t, backend(t)) }

func TestElections(t *testing.T) { storetest.RunElection(t, backend(t)) }

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	addr := server(t)
	table := newTable(t, connect(t, addr, nil))
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := proxied(t, addr)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr(), nil), table), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

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

// TestSessionIsTheCallers: it outlives the store.
func TestSessionIsTheCallers(t *testing.T) {
	session := connect(t, server(t), nil)
	s, rec := created(t, session, newTable(t, session))
	follow(t, s, rec)
	require.NoError(t, s.Close())
	require.True(t, session.IsConnected())
	require.NoError(t, r.Expr(1).Exec(session))
}

// TestTrapSilentServer: a driver that connects anew to a server that is silent waits for
// ever, whatever the context of a query says.
func TestTrapSilentServer(t *testing.T) {
	addr := server(t)
	operator := connect(t, addr, nil)
	table := newTable(t, operator)
	writer, rec := created(t, operator, table)
	p := proxied(t, addr)
	s := newStore(t, connect(t, p.Addr(), nil), table, rethinkdb.WithQuiet(2*time.Second))
	f := follow(t, s, rec)
	p.Cut()
	p.Drop()
	for range 40 { // more than may wait in the background
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		begin := time.Now()
		_, err := s.Heartbeat(ctx, rec, next(rec))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		unknown(t, err)
		require.Less(t, time.Since(begin), 10*time.Second)
	}
	ends(t, f)
	p.Heal()
	require.Eventually(t, func() bool { // a heartbeat of before may have been carried out
		now, err := s.Read(bounded(t))
		if err == nil {
			rec = now
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	rec = beat(t, writer, rec)
	follow(t, s, rec)

	other := newStore(t, connect(t, p.Addr(), nil), table)
	f = follow(t, other, rec)
	p.Cut()
	p.Drop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, _ = other.Read(ctx)
	begin := time.Now()
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	took := time.Since(begin)
	p.Heal() // or the session's own Close would wait
	require.Less(t, took, 8*time.Second, "two seconds each, on a machine that is busy")
}
