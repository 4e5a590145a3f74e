// Package electionprom exports metrics of elections to Prometheus. A [Collector] provides
// an option for [leaderelection.NewElection] that reports the events of an election to
// the collector. Programs that do not import this package do not link the Prometheus
// client.
//
// All metrics have the label election, which is the path of the election node:
//
//	leaderelection_leader               gauge: candidates of this process that lead at this moment
//	leaderelection_joined_total         candidates that have joined the election
//	leaderelection_elected_total        leaderships acquired
//	leaderelection_suspended_total      leaderships suspended because their lease expired
//	leaderelection_resumed_total        suspended leaderships that were resumed
//	leaderelection_lost_total           leaderships that have ended, by reason
//	leaderelection_ended_total          candidacies that have ended, by reason
//	leaderelection_hand_over_seconds    histogram: from the notification that the predecessor left to leadership
//	leaderelection_check_seconds        histogram: response times of checks that extended a lease
//	leaderelection_checks_failed_total  checks that did not extend a lease
//	leaderelection_watches_total        watches set
//	leaderelection_missed_events_total  events that are not counted because hooks did not return in time
//
// [leaderelection.Hooks] documents when each event is counted. The gauge is updated with
// a delay and must not be used for decisions: use [leaderelection.Leadership] instead. If
// the process of a leader is stopped, the gauge keeps its last value.
package electionprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-leaderelection/leaderelection"
)

// Collector collects metrics from all elections that were created with its
// [Collector.Option]. Create it with [NewCollector] and register it once. Its methods are
// safe for concurrent use; they do not block and send no requests to ZooKeeper.
type Collector struct {
	all []prometheus.Collector

	leader                                           *prometheus.GaugeVec
	joined, elected, suspended, resumed, lost, ended *prometheus.CounterVec
	checksFailed, watches, missed                    *prometheus.CounterVec
	handOver, check                                  *prometheus.HistogramVec

	mu      sync.Mutex
	leading map[candidate]struct{}
}

// candidate is one that leads.
type candidate struct{ election, id string }

var _ prometheus.Collector = (*Collector)(nil)

const (
	labelElection = "election"
	labelReason   = "reason"
)

// NewCollector returns a collector without values. labels, which may be nil, are added to
// every metric. If several collectors are registered with one registry, their labels must
// differ. Registration fails if a label is invalid or is named election or reason.
func NewCollector(labels prometheus.Labels) *Collector {
	c := &Collector{leading: map[candidate]struct{}{}}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "leaderelection", Name: name, Help: help, ConstLabels: labels,
		}, append([]string{labelElection}, more...))
		c.all = append(c.all, v)
		return v
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leaderelection", Name: name, Help: help, ConstLabels: labels,
			// From 0.1 ms, which is a local ensemble's, to 6.5 s, a session timeout's.
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{labelElection})
		c.all = append(c.all, v)
		return v
	}
	c.leader = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "leaderelection", Name: "leader", ConstLabels: labels,
		Help: "Candidates of this process that lead at this moment.",
	}, []string{labelElection})
	c.all = append(c.all, c.leader)
	c.joined = counter("joined_total", "Candidates that have joined the election.")
	c.elected = counter("elected_total", "Leaderships acquired.")
	c.suspended = counter("suspended_total", "Leaderships suspended because their lease expired.")
	c.resumed = counter("resumed_total", "Suspended leaderships that were resumed.")
	c.lost = counter("lost_total", "Leaderships that have ended.", labelReason)
	c.ended = counter("ended_total", "Candidacies that have ended.", labelReason)
	c.handOver = histogram("hand_over_seconds", "Time from the notification that the predecessor left to leadership.")
	c.check = histogram("check_seconds", "Response times of checks that extended a lease.")
	c.checksFailed = counter("checks_failed_total", "Checks that did not extend a lease.")
	c.watches = counter("watches_total", "Watches set on znodes of candidates.")
	c.missed = counter("missed_events_total", "Events that were not counted because hooks did not return in time.")
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.all {
		v.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.all {
		v.Collect(to)
	}
}

// Option returns the option that makes an election report to c. It may be used for any
// number of elections, and together with other hooks.
func (c *Collector) Option() leaderelection.Option {
	type event = leaderelection.HookEvent
	return leaderelection.WithHooks(leaderelection.Hooks{
		Joined: func(e event) {
			c.leader.WithLabelValues(e.Election) // 0 from now on
			c.joined.WithLabelValues(e.Election).Inc()
		},
		Elected: func(e event) {
			c.lead(e, true)
			c.elected.WithLabelValues(e.Election).Inc()
			if d, ok := e.HandOver(); ok {
				observe(c.handOver, e, d)
			}
		},
		Suspended: func(e event) {
			c.lead(e, false)
			c.suspended.WithLabelValues(e.Election).Inc()
		},
		Resumed: func(e event) {
			c.lead(e, true)
			c.resumed.WithLabelValues(e.Election).Inc()
		},
		Lost: func(e event) {
			c.lead(e, false)
			c.lost.WithLabelValues(e.Election, reason(e.Err)).Inc()
		},
		Ended: func(e event) {
			c.lead(e, false)
			c.ended.WithLabelValues(e.Election, reason(e.Err)).Inc()
		},
		Checked: func(e event) {
			if e.Err != nil {
				c.checksFailed.WithLabelValues(e.Election).Inc()
				return
			}
			observe(c.check, e, e.Time.Sub(e.Sent))
		},
		Watched: func(e event) { c.watches.WithLabelValues(e.Election).Inc() },
		Missed:  func(e event) { c.missed.WithLabelValues(e.Election).Add(float64(e.Missed)) },
	})
}

func observe(v *prometheus.HistogramVec, e leaderelection.HookEvent, d time.Duration) {
	v.WithLabelValues(e.Election).Observe(d.Seconds())
}

// lead counts each candidate once, whatever of its events was missed.
func (c *Collector) lead(e leaderelection.HookEvent, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := candidate{e.Election, e.ID}
	_, led := c.leading[who]
	switch {
	case leads == led:
	case leads:
		c.leading[who] = struct{}{}
		c.leader.WithLabelValues(e.Election).Inc()
	default:
		delete(c.leading, who)
		c.leader.WithLabelValues(e.Election).Dec()
	}
}
