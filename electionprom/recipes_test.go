package electionprom

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRecipeCollector_CountsLocksQueuesCaches checks that the collector counts the events of locks, queues and
// caches, and removes the gauges of a path when the last queue or cache there is closed.
func TestRecipeCollector_CountsLocksQueuesCaches(t *testing.T) {
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
		idle, err := queue.New(conn, "/jobs", events)
		require.NoError(t, err)
		taken := make(chan error)
		go func() { _, err := idle.Take(t.Context()); taken <- err }()
		synctest.Wait()
		require.NoError(t, q.Close())
		require.Equal(t, 1, testutil.CollectAndCount(c.items), "another queue reports it")
		require.NoError(t, idle.Close())
		require.ErrorIs(t, <-taken, recipes.ErrClosed)
		require.Zero(t, testutil.CollectAndCount(c.items))
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
		requireEqual(`
			# HELP leaderelection_cache_failures_total Losses of the connection, after which a cache is read again.
			# TYPE leaderelection_cache_failures_total counter
			leaderelection_cache_failures_total{host="a",path="/jobs"} 1
			# HELP leaderelection_cache_znodes Znodes of the cache when it was up to date last.
			# TYPE leaderelection_cache_znodes gauge
			leaderelection_cache_znodes{host="a",path="/jobs"} 1
		`, "leaderelection_cache_failures_total", "leaderelection_cache_znodes")
		require.NoError(t, tree.Close())
		requireEqual("", "leaderelection_cache_znodes")
	})
}

// TestRecipeCollector_CountsLossesByReason checks that the collector counts each loss by its reason, and counts
// a dead letter that no consumer has received.
func TestRecipeCollector_CountsLossesByReason(t *testing.T) {
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

// TestRecipeCollector_CountsParticipants checks that the collector counts the participants of barriers, groups,
// services and shards.
func TestRecipeCollector_CountsParticipants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, err := zktest.Start(t).Connect(timeout)
		require.NoError(t, err)
		c := NewRecipeCollector(nil)
		events := recipes.WithEvents(c.Record)
		value := func(v *prometheus.GaugeVec, path string) int {
			synctest.Wait()
			return int(testutil.ToFloat64(v.WithLabelValues(path)))
		}
		requireNone := func(v *prometheus.GaugeVec) {
			t.Helper()
			synctest.Wait()
			require.Zero(t, testutil.CollectAndCount(v))
		}

		b, err := barrier.New(conn, "/gate", events)
		require.NoError(t, err)
		require.NoError(t, b.Set(t.Context()))
		passed := make(chan error)
		go func() { passed <- b.Wait(t.Context()) }()
		require.Equal(t, 1, value(c.barrierWaiting, "/gate"))
		require.NoError(t, b.Remove(t.Context()))
		require.NoError(t, <-passed)
		require.Zero(t, value(c.barrierWaiting, "/gate"))
		require.Equal(t, 1, testutil.CollectAndCount(c.barrierWait))

		g, err := group.New(conn, "/workers", events)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		views, others := g.Watch(ctx), g.Watch(t.Context())
		m, err := g.Join(t.Context(), "a", nil)
		require.NoError(t, err)
		require.Equal(t, 1, value(c.group.joined, "/workers"))
		require.Equal(t, 1, value(c.group.listed, "/workers"))
		require.NoError(t, conn.Delete("/workers/a", -1))
		time.Sleep(time.Second)
		require.Equal(t, 1, value(c.group.joined, "/workers"))
		require.EqualValues(t, 1, testutil.ToFloat64(c.group.lost.WithLabelValues("/workers", "deleted")))
		stop()
		for range views {
		}
		require.Equal(t, 1, value(c.group.listed, "/workers"), "another watch reports it")
		require.NoError(t, m.Close())
		require.Zero(t, value(c.group.joined, "/workers"))

		d, err := discovery.New(conn, "/services", events)
		require.NoError(t, err)
		p, err := d.Provider(t.Context(), "shop")
		require.NoError(t, err)
		r, err := d.Register(t.Context(), discovery.Instance{Name: "shop"})
		require.NoError(t, err)
		require.Equal(t, 1, value(c.discovery.joined, "/services/shop"))
		require.Equal(t, 1, value(c.discovery.listed, "/services/shop"))
		require.NoError(t, r.Close())
		require.Zero(t, value(c.discovery.joined, "/services/shop"))
		require.NoError(t, p.Close())
		requireNone(c.discovery.listed)

		shards, err := shard.NewGroup(conn, "/shards", events)
		require.NoError(t, err)
		_, err = shards.Update(t.Context(), func(s *shard.Spec) error { s.Shards = []string{"x", "y"}; return nil })
		require.NoError(t, err)
		ctx, stop = context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- shards.Run(ctx, "a", func(ctx context.Context, _ *shard.Shard) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(time.Minute)
		require.Equal(t, 2, value(c.shards.owned, "/shards"))
		require.Equal(t, 2, value(c.shards.planned, "/shards"))
		require.Positive(t, value(c.shards.version, "/shards"))
		require.Zero(t, value(c.shards.withoutLeader, "/shards"))
		require.EqualValues(t, 2, testutil.ToFloat64(c.shards.acquired.WithLabelValues("/shards", "added")))
		stop()
		require.NoError(t, <-ended)
		require.Zero(t, value(c.shards.owned, "/shards"))
		requireNone(c.shards.planned)

		conn.Close()
		for range others {
		}
		requireNone(c.group.listed)
	})
}

// TestRecipeCollector_CountsPlansWithoutLeader checks that the collector counts a plan that was made without a
// leader, and the loss of a shard by its reason.
func TestRecipeCollector_CountsPlansWithoutLeader(t *testing.T) {
	c := NewRecipeCollector(nil)
	record := func(e event.Event) {
		e.Recipe, e.Path = "shard", "/shards"
		c.Record(e)
	}
	record(event.Event{Kind: event.Planned, Token: 3, Count: 5, Err: errors.New("no leader")})
	require.EqualValues(t, 1, testutil.ToFloat64(c.shards.withoutLeader.WithLabelValues("/shards")))
	record(event.Event{Kind: event.Acquired})
	require.EqualValues(t, 1, testutil.ToFloat64(c.shards.acquired.WithLabelValues("/shards", "unchanged")))
	record(event.Event{Kind: event.Lost, Err: fmt.Errorf("%w: %w", shard.ErrRevoked, recipes.ErrReleased)})
	require.EqualValues(t, 1, testutil.ToFloat64(c.shards.lost.WithLabelValues("/shards", "revoked")))
	require.Zero(t, testutil.ToFloat64(c.shards.owned.WithLabelValues("/shards")))
}
