package electionprom

import (
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
//
// The gauges are updated with a delay, and must not be used for decisions. If several values refer to one path, such
// as two caches, the gauges items and znodes are those of the last event.
type RecipeCollector struct {
	metrics
	wait, hold, age, work, stale         *prometheus.HistogramVec
	held, items, working, znodes         *prometheus.GaugeVec
	lost, ended, rejected, cacheFailures *prometheus.CounterVec
}

const (
	labelPath    = "path"
	labelOutcome = "outcome"
)

// NewRecipeCollector returns a collector without values. labels are as for [NewCollector]; they must not be named path,
// reason or outcome.
func NewRecipeCollector(labels prometheus.Labels) *RecipeCollector {
	c := &RecipeCollector{metrics: metrics{labels: labels, label: labelPath}}
	c.wait = c.histogram("lock_wait_seconds", "Time from the call until the lock, or leases, were granted.", longBuckets)
	c.hold = c.histogram("lock_hold_seconds", "How long holds lasted.", longBuckets)
	c.held = c.gauge("lock_held", "Holds of this process at this moment.")
	c.lost = c.counter("lock_lost_total", "Holds that were lost.", labelReason)
	c.items = c.gauge("queue_items", "Items that a consumer of this process has listed, without its own.")
	c.age = c.histogram("queue_age_seconds", "Age of items when a consumer received them.", longBuckets)
	c.work = c.histogram("queue_work_seconds", "How long consumers had items.", longBuckets)
	c.working = c.gauge("queue_working", "Items that consumers of this process have at this moment.")
	c.ended = c.counter("queue_ended_total", "Items that consumers had.", labelOutcome)
	c.rejected = c.counter("queue_rejected_total", "Items that have become dead letters.")
	c.cacheFailures = c.counter("cache_failures_total", "Losses of the connection, after which a cache is read again.")
	c.znodes = c.gauge("cache_znodes", "Znodes of the cache when it was up to date last.")
	c.stale = c.histogram("cache_stale_seconds", "How long it took to fill a cache, or to read it again.", longBuckets)
	return c
}

// Record counts an event of a recipe. It ignores events of elections.
func (c *RecipeCollector) Record(e event.Event) {
	switch e.Recipe {
	case "lock":
		c.recordLock(e)
	case "queue":
		c.recordQueue(e)
	case "cache":
		c.recordCache(e)
	}
}

func (c *RecipeCollector) recordLock(e event.Event) {
	switch e.Kind {
	case event.Acquired:
		c.wait.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
		c.held.WithLabelValues(e.Path).Inc()
		return
	case event.Lost:
		c.lost.WithLabelValues(e.Path, holdReason(e.Err)).Inc()
	}
	c.held.WithLabelValues(e.Path).Dec()
	c.hold.WithLabelValues(e.Path).Observe(e.Duration.Seconds())
}

// outcomes are the values of the label outcome.
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
			return // no consumer has received it
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
