package recipes_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
)

// eventsOf returns the events of one recipe at one path that takeEvents has not removed yet.
func (l *eventLog) eventsOf(recipe, path string) (events []event.Event) {
	bubble.Advance(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.all), func(e event.Event) bool { return e.Recipe != recipe || e.Path != path })
}

// TestGroup_EmitsEvents checks the events of a membership that joins, is deleted by an operator and is closed, and
// the events of a view until its context or its connection ends.
func TestGroup_EmitsEvents(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		conn, operator := h.Connect(), h.Connect()
		g, err := group.New(conn, "/app/workers", recipes.WithEvents(log.add))
		require.NoError(h, err)
		m, err := g.Join(h.Context(), "a", nil)
		require.NoError(h, err)
		joined := log.eventsOf("group", "/app/workers")
		require.Equal(h, []string{"joined 0"}, log.takeEvents())
		require.Equal(h, "/app/workers/a", joined[0].Subject)
		require.Equal(h, m.Current().Token, joined[0].Token)

		ctx, stop := context.WithCancel(h.Context())
		views := g.Watch(ctx)
		require.Equal(h, []string{"opened 0", "listed 0 count 1"}, log.takeEvents())
		require.NoError(h, operator.Delete("/app/workers/a", -1))
		bubble.Advance(time.Second)
		found := log.eventsOf("group", "/app/workers")
		require.NotEqual(h, joined[0].Token, m.Current().Token)
		require.ElementsMatch(h, []string{"lost 0: " + recipes.ErrDeleted.Error(), "joined 0", "listed 0", "listed 0 count 1"}, log.takeEvents())
		require.Equal(h, joined[0].Token, found[0].Token)

		stop()
		for range views {
		}
		require.Equal(h, []string{"ended 0"}, log.takeEvents())
		require.NoError(h, m.Close())
		require.Equal(h, []string{"released 0"}, log.takeEvents())

		views = g.Watch(h.Context())
		bubble.Advance(0)
		conn.Close()
		for range views {
		}
		ended := log.takeEvents()
		require.Equal(h, []string{"opened 0", "listed 0"}, ended[:len(ended)-1])
		require.Contains(h, ended[len(ended)-1], "ended 0: watch /app/workers: ")
	})
}

// TestDiscovery_EmitsEvents checks the events of a provider and of a registration, from their start until they are
// closed.
func TestDiscovery_EmitsEvents(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		d, err := discovery.New(h.Connect(), "/services", recipes.WithEvents(log.add))
		require.NoError(h, err)
		provider, err := d.Provider(h.Context(), "shop")
		require.NoError(h, err)
		require.Equal(h, []string{"opened 0", "listed 0"}, log.takeEvents())
		r, err := d.Register(h.Context(), discovery.Instance{Name: "shop", ID: "one"})
		require.NoError(h, err)
		require.Len(h, log.eventsOf("discovery", "/services/shop"), 2)
		require.ElementsMatch(h, []string{"joined 0", "listed 0 count 1"}, log.takeEvents())
		require.NoError(h, r.Close())
		bubble.Advance(time.Second)
		require.Subset(h, log.takeEvents(), []string{"released 0", "listed 0"})
		require.NoError(h, provider.Close())
		require.Equal(h, []string{"ended 0: recipes: closed"}, log.takeEvents())
	})
}

// TestShards_EmitEvents checks the events of a member with shards: the plan that it follows, the shards that it
// acquires and releases with their reasons, and a shard that is revoked after the grace period.
func TestShards_EmitEvents(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		newGroup := func(options ...shard.Option) *shard.Group {
			g, err := shard.NewGroup(h.Connect(), "/shards", append(options, recipes.WithSessionTimeout(bubble.SessionTimeout), shard.WithGrace(time.Second))...)
			require.NoError(h, err)
			return g
		}
		update := func(f func(*shard.Spec)) {
			_, err := newGroup().Update(h.Context(), func(s *shard.Spec) error { f(s); return nil })
			require.NoError(h, err)
		}
		var log eventLog
		run := func(id string, g *shard.Group, work func(ctx context.Context)) (stop func()) {
			ctx, cancel := context.WithCancel(h.Context())
			ended := bubble.Async(func() error {
				return g.Run(ctx, id, func(ctx context.Context, _ *shard.Shard) error { work(ctx); return nil })
			})
			bubble.Advance(20 * time.Second)
			return func() { cancel(); require.NoError(h, <-ended) }
		}
		untilDone := func(ctx context.Context) { <-ctx.Done() }
		update(func(s *shard.Spec) { s.Shards = []string{"x", "y"} })

		// Start a member, which gets both shards, and then a second member, which gets one of them.
		stop := run("a", newGroup(recipes.WithEvents(log.add)), untilDone)
		require.Len(h, log.eventsOf("group", "/shards/members"), 1)
		all := log.eventsOf("shard", "/shards")
		require.Equal(h, event.Opened, all[0].Kind)
		planned := all[len(all)-1]
		require.Equal(h, event.Planned, planned.Kind)
		require.Equal(h, 2, planned.Count)
		found := log.takeEvents()
		require.Equal(h, 2, strings.Count(strings.Join(found, "\n"), "acquired 0 added"), "%v", found)
		stopOther := run("b", newGroup(), untilDone)
		var released event.Event
		for _, e := range log.eventsOf("shard", "/shards") {
			if e.Kind == event.Released {
				released = e
			}
		}
		require.Equal(h, string(shard.Joined), released.Reason)
		require.GreaterOrEqual(h, released.Duration, 15*time.Second)
		plans := log.eventsOf("shard", "/shards")
		require.Greater(h, plans[len(plans)-1].Token, planned.Token)
		log.takeEvents()

		// Stop the second member, so that the first member gets its shard back.
		stopOther()
		bubble.Advance(20 * time.Second)
		require.Contains(h, strings.Join(log.takeEvents(), "\n"), " left")
		stop()
		found = log.takeEvents()
		require.Equal(h, "ended 0: recipes: closed", found[len(found)-1])
		require.Equal(h, 2, strings.Count(strings.Join(found, "\n"), " left"), "%v", found)

		// Stop a member whose function does not return within the grace period.
		stop = run("a", newGroup(recipes.WithEvents(log.add)), func(ctx context.Context) { <-ctx.Done(); time.Sleep(5 * time.Second) })
		log.takeEvents()
		stop()
		require.Contains(h, strings.Join(log.takeEvents(), "\n"), shard.ErrRevoked.Error())
	})
}

// TestShards_ReportPlanWithoutLeader checks that the Planned event of a member contains an error while no leader
// writes plans, and none when a leader has written the plan.
func TestShards_ReportPlanWithoutLeader(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		g, err := shard.NewGroup(h.Connect(), "/shards", recipes.WithEvents(log.add), recipes.WithSessionTimeout(bubble.SessionTimeout))
		require.NoError(h, err)
		_, err = g.Update(h.Context(), func(s *shard.Spec) error { s.Shards = []string{"x"}; return nil })
		require.NoError(h, err)
		blocking := lockLeader(h)
		ctx, stop := context.WithCancel(h.Context())
		ended := bubble.Async(func() error {
			return g.Run(ctx, "a", func(ctx context.Context, _ *shard.Shard) error { <-ctx.Done(); return nil })
		})
		bubble.Advance(10 * bubble.SessionTimeout)
		withoutLeader := func() (is bool) {
			for _, e := range log.eventsOf("shard", "/shards") {
				if e.Kind == event.Planned {
					is = e.Err != nil
				}
			}
			return is
		}
		require.True(h, withoutLeader())
		require.NoError(h, blocking.Release())
		bubble.Advance(10 * bubble.SessionTimeout)
		require.False(h, withoutLeader())
		stop()
		require.NoError(h, <-ended)
	})
}

// lockLeader holds the lock of the leader, so that no member can become the leader.
func lockLeader(h *bubble.Test) *lock.Hold {
	m, err := lock.NewMutex(h.Connect(), "/shards/leader")
	require.NoError(h, err)
	hold, err := m.Lock(h.Context())
	require.NoError(h, err)
	return hold
}
