//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/internal/dbserver"
)

func newProxy(t testing.TB, target string) *dbserver.Proxy {
	t.Helper()
	p, err := dbserver.NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// TestTrapHalfOpen: a connection that is dead without a word is found by its feed, calls
// return with their contexts, Close in time, and everything works again afterwards.
func TestTrapHalfOpen(t *testing.T) {
	server := shared.Get(t)
	proxy := newProxy(t, server.Addr())
	table := newTable()
	s, r := created(t, newPool(t, proxy.Addr(), nil), table, postgres.WithQuiet(300*time.Millisecond))
	other := newStore(t, newPool(t, server.Addr(), nil), table)
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	changes, err := s.Watch(bounded(t))
	require.NoError(t, err)
	defer changes.Close()
	proxy.Cut()
	t.Cleanup(proxy.Heal)
	r = beat(t, other, r)

	begin := time.Now()
	for name, next := range map[string]func() error{
		"the feed":      func() error { _, err := f.Next(bounded(t)); return err },
		"other changes": func() error { _, err := changes.Next(bounded(t)); return err },
	} {
		err := next()
		require.Error(t, err, name)
		require.NoError(t, bounded(t).Err(), name)
	}
	require.Less(t, time.Since(begin), patience/2, "it takes the quiet time twice, and not until the test's patience")

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begin = time.Now()
	_, err = s.Heartbeat(ctx, r, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Subscribe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), closes)

	blocked := newStore(t, newPool(t, proxy.Addr(), nil), table)
	result := make(chan error, 1)
	go func() { _, err := blocked.Read(context.Background()); result <- err }()
	begin = time.Now()
	require.NoError(t, blocked.Close())
	require.ErrorIs(t, <-result, changefeed.ErrClosed)
	require.Less(t, time.Since(begin), closes)

	proxy.Heal()
	r, err = other.Read(bounded(t))
	require.NoError(t, err)
	tells(t, subscribe(t, s), "what was missed", version(r.Version))
}

// node is a candidate behind a proxy of its own, that appends its leaderships to a table.
type node struct {
	name     string
	proxy    *dbserver.Proxy
	election *changefeed.Election
	log      *pgxpool.Pool // not behind the proxy
}

// lead notes one leadership: it acts as often as it can, and looks whether it leads each
// time, as a program does. The end is when it has acted last.
func (n *node) lead(t *testing.T, zero time.Time, l *leaderelection.Leadership) {
	begin, end := time.Since(zero), time.Duration(0)
	for {
		now := time.Since(zero)
		if l.Err() != nil {
			break
		}
		end = now
		select {
		case <-l.Done():
		case <-time.After(time.Millisecond):
		}
	}
	if end == 0 {
		return // over before anything was done
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for { // the server may be down; noted twice is noted
		_, err := n.log.Exec(ctx, `INSERT INTO leaderships (term, name, began, ended) VALUES ($1, $2, $3, $4)`,
			l.Token(), n.name, int64(begin), int64(end))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("a leadership of %s is not noted: %v", n.name, err)
			return
		}
	}
}

// TestPartition: leaders are cut off, one after the other, and the server is killed.
// Every leader appends what it did to a table of the same database: no two have acted at
// one time, and terms grow.
func TestPartition(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	sql(t, operator, `CREATE TABLE leaderships (term bigint, name text, began bigint, ended bigint)`)
	zero := time.Now()
	changed := make(chan *node, 100)
	var all sync.WaitGroup
	nodes := make([]*node, 3)
	for i := range nodes {
		n := &node{name: fmt.Sprint("node ", i), proxy: newProxy(t, server.Addr()), log: operator}
		store := newStore(t, newPool(t, n.proxy.Addr(), nil), table)
		var err error
		n.election, err = changefeed.NewElection(store, changefeed.WithHeartbeat(200*time.Millisecond), changefeed.WithID(n.name))
		require.NoError(t, err)
		all.Go(func() { _ = n.election.ElectLeader() })
		all.Go(func() {
			var leads sync.WaitGroup
			var last *leaderelection.Leadership
			for status := range n.election.Status() {
				if l := status.Leadership; l != nil && l != last {
					last = l
					leads.Go(func() { n.lead(t, zero, l) })
					changed <- n
				}
			}
			leads.Wait()
		})
		nodes[i] = n
	}
	leader := func(but *node) *node {
		limit := time.After(2 * patience)
		for {
			select {
			case n := <-changed:
				if n != but {
					return n
				}
			case <-limit:
				require.FailNow(t, "nobody leads")
			}
		}
	}
	last := leader(nil)
	for range 2 {
		cut := last
		cut.proxy.Cut()
		last = leader(cut)
		cut.proxy.Heal()
	}
	require.NoError(t, server.Restart())
	_ = last.election.Resign()
	leader(last)
	for _, n := range nodes {
		_ = n.election.Resign()
	}
	all.Wait()

	type leadership struct {
		Term         int64
		Name         string
		Began, Ended int64
	}
	rows, err := operator.Query(bounded(t), `SELECT DISTINCT term, name, began, ended FROM leaderships ORDER BY began`)
	require.NoError(t, err)
	noted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leadership])
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(noted), 4)
	for i := 1; i < len(noted); i++ {
		before, now := noted[i-1], noted[i]
		require.Greater(t, now.Term, before.Term, "%+v comes after %+v", now, before)
		require.Greater(t, now.Began, before.Ended, "%+v overlaps with %+v", now, before)
	}
	t.Logf("%d leaderships in %v", len(noted), time.Since(zero))
}
