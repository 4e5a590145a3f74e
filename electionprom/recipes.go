package electionprom

import (
	"cmp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-leaderelection/leaderelection/event"
)

// RecipeCollector collects metrics from recipes, whose events [RecipeCollector.Record] counts: pass it to
// recipes.WithEvents. Create it with [NewRecipeCollector] and register it once. Its methods are safe for
// concurrent use, do not block, and send no requests.
//
// Each path of a recipe is a series. A program with many paths can set the Path of an event to another label before
// it calls Record. All metrics have the label path:
//
//	leaderelection_lock_wait_seconds         histogram: from the call until the lock, or leases, were granted
//	leaderelection_lock_hold_seconds         histogram: how long holds lasted, however they ended
//	leaderelection_lock_held                 gauge: holds of this process at this moment
//	leaderelection_lock_lost_total           holds that were lost, by reason
//	leaderelection_queue_items               gauge: items that a consumer of this process has listed, without its own
//	leaderelection_queue_age_seconds         histogram: age of items when a consumer received them
//	leaderelection_queue_work_seconds        histogram: how long consumers had items
//	leaderelection_queue_working             gauge: items that consumers of this process have at this moment
//	leaderelection_queue_ended_total         items that consumers had, by outcome: acknowledged, returned, rejected, lost
//	leaderelection_queue_rejected_total      dead letters, also of items that no consumer has received
//	leaderelection_cache_failures_total      losses of the connection, after which a cache is read again
//	leaderelection_cache_znodes              gauge: znodes of the cache when it was up to date last, each of which it watches
//	leaderelection_cache_stale_seconds       histogram: how long it took to fill a cache, or to read it again
//	leaderelection_barrier_wait_seconds      histogram: how long callers waited at a barrier or a double barrier
//	leaderelection_barrier_waiting           gauge: callers of this process that wait at this moment
//	leaderelection_group_members             gauge: members that a watch of this process has read
//	leaderelection_group_joined              gauge: znodes of members that this process maintains, if they exist
//	leaderelection_group_lost_total          znodes of members that were lost, by reason
//	leaderelection_discovery_instances       gauge: enabled instances that a provider of this process has read
//	leaderelection_discovery_registered      gauge: znodes of instances that this process maintains, if they exist
//	leaderelection_discovery_lost_total      znodes of instances that were lost, by reason
//	leaderelection_shard_owned               gauge: shards that members of this process own
//	leaderelection_shard_planned             gauge: shards that have an owner in the plan that this member follows
//	leaderelection_shard_plan_version        gauge: version of that plan
//	leaderelection_shard_plan_without_leader gauge: 1 if no leader has made that plan, otherwise 0
//	leaderelection_shard_wait_seconds        histogram: from the plan until the member owns the shard
//	leaderelection_shard_acquired_total      shards that members of this process have got, by reason
//	leaderelection_shard_lost_total          shards that were lost, or not released in time, by reason
//
// The label reason is as in the metrics of elections, or lease_expired, deleted instead of candidate_deleted, or revoked
// for a shard that was not released in time. Of shards that were acquired it is the shard.Reason, or unchanged. The metrics
// cache_failures_total and cache_znodes correspond to prometheus_treecache_zookeeper_failures_total and
// prometheus_treecache_watcher_goroutines of Prometheus's own discovery.
//
// The gauges are updated with a delay, and must not be used for decisions. If several values refer to one path, such
// as two caches, the gauges items, znodes, members, instances, planned and plan are those of the last event. They
// disappear when the last of these values was closed. Members of shards at a path are a group at <path>/members.
type RecipeCollector struct {
	metrics
	wait, hold, age, work, stale         *prometheus.HistogramVec
	held, items, working, znodes         *prometheus.GaugeVec
	lost, ended, rejected, cacheFailures *prometheus.CounterVec
	barrierWait                          *prometheus.HistogramVec
	barrierWaiting                       *prometheus.GaugeVec
	group, discovery                     participationMetrics
	shards                               shardMetrics

	// lists contains, for each recipe, the gauges that must be removed after event.Ended, because
	// nothing updates them any more.
	lists map[string][]*prometheus.GaugeVec
	mu    sync.Mutex
	open  map[gaugeSource]int // for each source, how many recipe values of the program update its gauges
}

// participationMetrics contains the metrics of a recipe that maintains znodes and reads lists of them.
type participationMetrics struct {
	listed, joined *prometheus.GaugeVec
	lost           *prometheus.CounterVec
}

type shardMetrics struct {
	owned, planned, version, withoutLeader *prometheus.GaugeVec
	wait                                   *prometheus.HistogramVec
	acquired, lost                         *prometheus.CounterVec
}

// gaugeSource identifies the gauges of one recipe at one path.
type gaugeSource struct{ recipe, path string }

const (
	labelPath    = "path"
	labelOutcome = "outcome"
)

// NewRecipeCollector returns a collector without values. labels are as for [NewCollector]; they must not be named path,
// reason or outcome.
func NewRecipeCollector(labels prometheus.Labels) *RecipeCollector {
	c := &RecipeCollector{metrics: metrics{labels: labels, label: labelPath}, open: map[gaugeSource]int{}}
	c.wait = c.histogram("lock_wait_seconds", "Time from the call until the lock, or leases, were granted.", longBuckets)
	c.hold = c.histogram("lock_hold_seconds", "How long holds lasted.", longBuckets)
	c.held = c.newGauge("lock_held", "Holds of this process at this moment.")
	c.lost = c.counter("lock_lost_total", "Holds that were lost.", labelReason)
	c.items = c.newGauge("queue_items", "Items that a consumer of this process has listed, without its own.")
	c.age = c.histogram("queue_age_seconds", "Age of items when a consumer received them.", longBuckets)
	c.work = c.histogram("queue_work_seconds", "How long consumers had items.", longBuckets)
	c.working = c.newGauge("queue_working", "Items that consumers of this process have at this moment.")
	c.ended = c.counter("queue_ended_total", "Items that consumers had.", labelOutcome)
	c.rejected = c.counter("queue_rejected_total", "Items that have become dead letters.")
	c.cacheFailures = c.counter("cache_failures_total", "Losses of the connection, after which a cache is read again.")
	c.znodes = c.newGauge("cache_znodes", "Znodes of the cache when it was up to date last.")
	c.stale = c.histogram("cache_stale_seconds", "How long it took to fill a cache, or to read it again.", longBuckets)
	c.barrierWait = c.histogram("barrier_wait_seconds", "How long callers waited at a barrier or a double barrier.", longBuckets)
	c.barrierWaiting = c.newGauge("barrier_waiting", "Callers of this process that wait at this moment.")
	c.group.listed = c.newGauge("group_members", "Members that a watch of this process has read.")
	c.group.joined = c.newGauge("group_joined", "Znodes of members that this process maintains, if they exist.")
	c.group.lost = c.counter("group_lost_total", "Znodes of members that were lost.", labelReason)
	c.discovery.listed = c.newGauge("discovery_instances", "Enabled instances that a provider of this process has read.")
	c.discovery.joined = c.newGauge("discovery_registered", "Znodes of instances that this process maintains, if they exist.")
	c.discovery.lost = c.counter("discovery_lost_total", "Znodes of instances that were lost.", labelReason)
	c.shards.owned = c.newGauge("shard_owned", "Shards that members of this process own.")
	c.shards.planned = c.newGauge("shard_planned", "Shards that have an owner in the plan that this member follows.")
	c.shards.version = c.newGauge("shard_plan_version", "Version of the plan that this member follows.")
	c.shards.withoutLeader = c.newGauge("shard_plan_without_leader", "1 if no leader has made the plan that this member follows, otherwise 0.")
	c.shards.wait = c.histogram("shard_wait_seconds", "Time from the plan until the member owns the shard.", longBuckets)
	c.shards.acquired = c.counter("shard_acquired_total", "Shards that members of this process have got.", labelReason)
	c.shards.lost = c.counter("shard_lost_total", "Shards that were lost, or not released in time.", labelReason)
	c.lists = map[string][]*prometheus.GaugeVec{
		"queue": {c.items}, "cache": {c.znodes}, "group": {c.group.listed}, "discovery": {c.discovery.listed},
		"shard": {c.shards.planned, c.shards.version, c.shards.withoutLeader},
	}
	return c
}

// Record counts an event of a recipe. It ignores events of elections.
func (c *RecipeCollector) Record(e event.Event) {
	switch e.Kind {
	case event.Opened, event.Ended:
		c.recordSource(e)
		return
	}
	switch e.Recipe {
	case "lock":
		c.recordLock(e)
	case "queue":
		c.recordQueue(e)
	case "cache":
		c.recordCache(e)
	case "barrier":
		c.recordBarrier(e)
	case "group":
		c.group.record(e)
	case "discovery":
		c.discovery.record(e)
	case "shard":
		c.shards.record(e)
	}
}

// recordSource counts the recipe values, such as queues, that are open at a path. When
// the last of them has ended, it removes the gauges of the path.
func (c *RecipeCollector) recordSource(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := gaugeSource{e.Recipe, e.Path}
	if e.Kind == event.Opened {
		if c.open[s]++; e.Recipe == "queue" {
			c.rejected.WithLabelValues(e.Path) // exports the value 0, so that the first event increases the counter
		}
		return
	}
	if c.open[s]--; c.open[s] > 0 {
		return
	}
	delete(c.open, s)
	for _, gauge := range c.lists[e.Recipe] {
		gauge.DeleteLabelValues(e.Path)
	}
}

func (c *RecipeCollector) recordLock(e event.Event) {
	switch e.Kind {
	case event.Acquired:
		c.wait.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
		c.held.WithLabelValues(e.Path).Inc()
		return
	case event.Lost:
		c.lost.WithLabelValues(e.Path, recipeReason(e.Err)).Inc()
	}
	c.held.WithLabelValues(e.Path).Dec()
	c.hold.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
}

// outcomes maps kinds of events to the values of the label outcome.
var outcomes = map[event.Kind]string{
	event.Released: "acknowledged", event.Returned: "returned", event.Rejected: "rejected", event.Lost: "lost",
}

func (c *RecipeCollector) recordQueue(e event.Event) {
	switch e.Kind {
	case event.Listed:
		c.items.WithLabelValues(e.Path).Set(float64(e.Count))
		return
	case event.Acquired:
		c.age.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
		c.working.WithLabelValues(e.Path).Inc()
		return
	case event.Rejected:
		c.rejected.WithLabelValues(e.Path).Inc()
		if e.Token == 0 {
			return // no consumer has received the item
		}
	}
	c.working.WithLabelValues(e.Path).Dec()
	c.work.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
	c.ended.WithLabelValues(e.Path, outcomes[e.Kind]).Inc()
}

func (c *RecipeCollector) recordCache(e event.Event) {
	switch e.Kind {
	case event.Stale:
		c.cacheFailures.WithLabelValues(e.Path).Inc()
	case event.Fresh:
		c.znodes.WithLabelValues(e.Path).Set(float64(e.Count))
		c.stale.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
	}
}

func (c *RecipeCollector) recordBarrier(e event.Event) {
	switch e.Kind {
	case event.Waiting:
		c.barrierWaiting.WithLabelValues(e.Path).Inc()
	case event.Passed:
		c.barrierWaiting.WithLabelValues(e.Path).Dec()
		c.barrierWait.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
	}
}

func (p *participationMetrics) record(e event.Event) {
	switch e.Kind {
	case event.Listed:
		p.listed.WithLabelValues(e.Path).Set(float64(e.Count))
	case event.Joined:
		p.joined.WithLabelValues(e.Path).Inc()
	case event.Lost:
		p.joined.WithLabelValues(e.Path).Dec()
		p.lost.WithLabelValues(e.Path, recipeReason(e.Err)).Inc()
	case event.Released:
		p.joined.WithLabelValues(e.Path).Dec()
	}
}

func (s *shardMetrics) record(e event.Event) {
	switch e.Kind {
	case event.Planned:
		s.owned.WithLabelValues(e.Path) // exports the value 0 before the first shard
		s.planned.WithLabelValues(e.Path).Set(float64(e.Count))
		s.version.WithLabelValues(e.Path).Set(float64(e.Token))
		without := 0.0
		if e.Err != nil {
			without = 1
		}
		s.withoutLeader.WithLabelValues(e.Path).Set(without)
	case event.Acquired:
		s.owned.WithLabelValues(e.Path).Inc()
		s.wait.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
		s.acquired.WithLabelValues(e.Path, cmp.Or(e.Reason, reasonUnchanged)).Inc()
	case event.Lost:
		s.owned.WithLabelValues(e.Path).Dec()
		s.lost.WithLabelValues(e.Path, recipeReason(e.Err)).Inc()
	case event.Released:
		s.owned.WithLabelValues(e.Path).Dec()
	}
}

// reasonUnchanged is the value of the label reason for a shard that had the same owner before.
const reasonUnchanged = "unchanged"
