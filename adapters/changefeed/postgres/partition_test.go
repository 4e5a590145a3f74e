//go:build unix

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/overlap"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/postgres"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
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
	s, r := created(t, newPool(t, proxy.Addr(), nil), table, postgres.WithQuiet(2*time.Second))
	other := newStore(t, newPool(t, server.Addr(), nil), table)
	f := subscribe(t, s)
	tells(t, f, "the record", version(r.Version))
	changes, err := s.Changes(bounded(t), "")
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
	require.Less(t, time.Since(begin), patience/2, "it takes the quiet time of 2 s twice, and not until the test's patience")

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

// TestPartition: leaders are cut off, one after the other, and the server is killed. No two
// leaders act at the same time, and terms increase.
func TestPartition(t *testing.T) {
	server := shared.Get(t)
	operator, table := newPool(t, server.Addr(), nil), newTable()
	rows := newTable().Sanitize()
	sql(t, operator, `CREATE TABLE `+rows+` (line text)`)
	var networks [overlap.Members]*dbserver.Proxy
	for i := range networks {
		networks[i] = newProxy(t, server.Addr())
	}
	overlap.Run(t, overlap.World{
		Store:   func(i int) changefeed.Store { return newStore(t, newPool(t, networks[i].Addr(), nil), table) },
		Cut:     func(i int) { networks[i].Cut() },
		Heal:    func(i int) { networks[i].Heal() },
		Restart: func() { require.NoError(t, server.Restart()) },
		Append: func(line []byte) error {
			_, err := operator.Exec(bounded(t), `INSERT INTO `+rows+` VALUES ($1)`, string(line))
			return err
		},
		Rows: func() (all [][]byte) {
			found, err := operator.Query(bounded(t), `SELECT line FROM `+rows)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(found, pgx.RowTo[string])
			require.NoError(t, err)
			for _, line := range lines {
				all = append(all, []byte(line))
			}
			return all
		},
	})
}
