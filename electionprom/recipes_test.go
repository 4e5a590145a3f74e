package electionprom

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRecipeCollector fails if a metric of a lock, a queue or a cache is wrong.
func TestRecipeCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(timeout)
		require.NoError(t, err)
		c := NewRecipeCollector(prometheus.Labels{"host": "a"})
		events := recipes.WithEvents(c.Record)
		requireEqual := func(want string, names ...string) {
			t.Helper()
			synctest.Wait()
			require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(strings.ReplaceAll(want, "\t", "")), names...))
		}
		m, err := lock.NewMutex(conn, "/lock", events)
		require.NoError(t, err)
		h, err := m.Lock(t.Context())
		require.NoError(t, err)
		requireEqual(`
			# HELP leaderelection_lock_held Holds of this process at this moment.
			# TYPE leaderelection_lock_held gauge
			leaderelection_lock_held{host="a",path="/lock"} 1
		`, "leaderelection_lock_held", "leaderelection_lock_lost_total")
		require.NoError(t, h.Release())

		q, err := queue.New(conn, "/jobs", events, queue.WithMaxAttempts(2))
		require.NoError(t, err)
		for _, job := range []string{"done", "fails"} {
			_, err := q.Put(t.Context(), []byte(job))
			require.NoError(t, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, q.Handle(ctx, func(_ context.Context, i *queue.Item) error {
			if string(i.Data()) == "fails" {
				return errors.New("failed")
			}
			return nil
		}))
		require.NoError(t, q.Close())
		requireEqual(`
			# HELP leaderelection_lock_held Holds of this process at this moment.
			# TYPE leaderelection_lock_held gauge
			leaderelection_lock_held{host="a",path="/lock"} 0
			# HELP leaderelection_queue_ended_total Items that consumers had.
			# TYPE leaderelection_queue_ended_total counter
			leaderelection_queue_ended_total{host="a",outcome="acknowledged",path="/jobs"} 1
			leaderelection_queue_ended_total{host="a",outcome="rejected",path="/jobs"} 1
			leaderelection_queue_ended_total{host="a",outcome="returned",path="/jobs"} 1
			# HELP leaderelection_queue_rejected_total Items that have become dead letters.
			# TYPE leaderelection_queue_rejected_total counter
			leaderelection_queue_rejected_total{host="a",path="/jobs"} 1
			# HELP leaderelection_queue_working Items that consumers of this process have at this moment.
			# TYPE leaderelection_queue_working gauge
			leaderelection_queue_working{host="a",path="/jobs"} 0
		`, "leaderelection_lock_held", "leaderelection_queue_ended_total", "leaderelection_queue_rejected_total", "leaderelection_queue_working")

		tree, err := cache.New(conn, "/jobs", cache.Node, events)
		require.NoError(t, err)
		require.NoError(t, tree.Sync(t.Context()))
		srv.DropConnections(conn.SessionID())
		time.Sleep(timeout)
		require.NoError(t, tree.Close())
		requireEqual(`
			# HELP leaderelection_cache_failures_total Losses of the connection, after which a cache is read again.
			# TYPE leaderelection_cache_failures_total counter
			leaderelection_cache_failures_total{host="a",path="/jobs"} 1
			# HELP leaderelection_cache_znodes Znodes of the cache when it was up to date last.
			# TYPE leaderelection_cache_znodes gauge
			leaderelection_cache_znodes{host="a",path="/jobs"} 1
		`, "leaderelection_cache_failures_total", "leaderelection_cache_znodes")
	})
}

// TestRecipeCollector_Lost fails if the reason of a loss, or a dead letter that no consumer has received, is not counted.
func TestRecipeCollector_Lost(t *testing.T) {
	c := NewRecipeCollector(nil)
	for _, err := range []error{recipes.ErrLeaseExpired, recipes.ErrSessionExpired, errors.New("other")} {
		c.Record(event.Event{Kind: event.Acquired, Recipe: "lock", Path: "/lock", Token: 1})
		c.Record(event.Event{Kind: event.Lost, Recipe: "lock", Path: "/lock", Token: 1, Err: err})
	}
	c.Record(event.Event{Kind: event.Rejected, Recipe: "queue", Path: "/jobs"})
	c.Record(event.Event{Kind: event.Elected})
	for _, want := range []string{"lease_expired", "session_expired", "other"} {
		require.EqualValues(t, 1, testutil.ToFloat64(c.lost.WithLabelValues("/lock", want)), want)
	}
	require.Zero(t, testutil.ToFloat64(c.held.WithLabelValues("/lock")))
	require.EqualValues(t, 1, testutil.ToFloat64(c.rejected.WithLabelValues("/jobs")))
	require.Zero(t, testutil.ToFloat64(c.working.WithLabelValues("/jobs")))
}
