// Package electionprom shows elections to Prometheus: a [Collector] gives the option
// with which [leaderelection.NewElection] reports to it. Programs that do not import
// this package do not link the Prometheus client.
//
// The metrics, each with the label election, the path of the election node:
//
//	leaderelection_leader               gauge: how many candidates lead at this moment
//	leaderelection_joined_total         candidates that have come to stand in line
//	leaderelection_elected_total        leaderships won
//	leaderelection_suspended_total      leaderships that could not be proven for a time
//	leaderelection_resumed_total        and were proven again
//	leaderelection_lost_total           leaderships that are over, by reason
//	leaderelection_ended_total          candidacies that are over, by reason
//	leaderelection_hand_over_seconds    histogram: from the news of a predecessor's end to leading
//	leaderelection_check_seconds        histogram: answer times of the checks that have proven a lease
//	leaderelection_checks_failed_total  checks that have proven nothing
//	leaderelection_watches_total        watches set
//	leaderelection_missed_events_total  events that are in none of these, because hooks did not return
//
// What exactly is counted is said by [leaderelection.Hooks]. The gauge is for a look
// on: it follows what happens with a delay, and who acts as leader asks the
// Leadership. A leader whose process is stopped goes on to be shown as one.
package electionprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-leaderelection/leaderelection"
)

// Collector collects from every election that was made with its Option. Make one
// with [NewCollector] and register it, once. Its methods may be called from any
// goroutine, and none of them blocks or asks ZooKeeper.
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

// NewCollector returns a collector that has seen nothing. labels, which may be nil,
// are added to every metric; they need to differ where several collectors are
// registered with one registry. Registering fails where one of them is no valid label, or
// has the name of another: election, reason.
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
		Help: "Number of candidates of this process that lead, 0 or 1 where it has one for each election.",
	}, []string{labelElection})
	c.all = append(c.all, c.leader)
	c.joined = counter("joined_total", "Candidates that have come to stand in line.")
	c.elected = counter("elected_total", "Leaderships won.")
	c.suspended = counter("suspended_total", "Leaderships that could not be proven for a time.")
	c.resumed = counter("resumed_total", "Suspended leaderships that were proven again.")
	c.lost = counter("lost_total", "Leaderships that are over.", labelReason)
	c.ended = counter("ended_total", "Candidacies that are over.", labelReason)
	c.handOver = histogram("hand_over_seconds", "Time from the news of a predecessor's end to leading.")
	c.check = histogram("check_seconds", "Answer times of the checks that have proven a lease.")
	c.checksFailed = counter("checks_failed_total", "Checks of a lease that have proven nothing.")
	c.watches = counter("watches_total", "Watches set on znodes of candidates.")
	c.missed = counter("missed_events_total", "Events not counted because hooks did not return.")
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

// Option has an election report to c. It may be given to any number of elections,
// and beside other hooks.
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
