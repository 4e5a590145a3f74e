// Package electionprom exports metrics of elections to Prometheus. A [Collector] counts the
// events of candidates, of all kinds of elections. Programs that do not import this package do
// not link the Prometheus client.
//
// All metrics have the label election, for instance the path of the election node:
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
//	leaderelection_missed_events_total  events that were dropped because they were not received in time
//
// The kinds of [event.Event] document when each event is reported, and by which kinds of
// elections. The gauge is updated with a delay and must not be used for decisions: use
// leaderelection.Leadership instead. If the process of a leader is stopped, the gauge keeps its
// last value.
package electionprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-leaderelection/leaderelection/event"
)

// Collector collects metrics from the candidates whose events it observes: see
// [Collector.Observe]. Create it with [NewCollector] and register it once. Its methods are
// safe for concurrent use; they do not block and send no requests to ZooKeeper.
type Collector struct {
	all []prometheus.Collector

	leader                                           *prometheus.GaugeVec
	joined, elected, suspended, resumed, lost, ended *prometheus.CounterVec
	checksFailed, watches, missed                    *prometheus.CounterVec
	handOver, check                                  *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Collector)(nil)

const (
	labelElection = "election"
	labelReason   = "reason"
)

// NewCollector returns a collector without values. labels, which may be nil, are added to
// every metric. If several collectors are registered with one registry, their labels must
// differ. Registration fails if a label is invalid or is named election or reason.
func NewCollector(labels prometheus.Labels) *Collector {
	c := &Collector{}
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
			// From 0.1 ms, as on a local ensemble, to 6.5 s, more than a common session timeout.
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
	c.missed = counter("missed_events_total", "Events that were dropped because they were not received in time.")
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

// Recorder returns a function that counts an event of one candidate. election is the value of
// the label election, for instance the path of the election node. The function must be called
// with each event of leaderelection.Candidate.Events, on one goroutine at a time. A program
// that does not use the events itself calls [Collector.Observe] instead.
func (c *Collector) Recorder(election string) func(event.Event) {
	leading := false
	setLeading := func(leads bool) {
		switch {
		case leads && !leading:
			c.leader.WithLabelValues(election).Inc()
		case !leads && leading:
			c.leader.WithLabelValues(election).Dec()
		}
		leading = leads
	}
	return func(e event.Event) {
		if e.Missed > 0 {
			c.missed.WithLabelValues(election).Add(float64(e.Missed))
		}
		switch e.Kind {
		case event.Joined:
			c.leader.WithLabelValues(election) // exports the value 0
			c.joined.WithLabelValues(election).Inc()
		case event.Elected:
			setLeading(true)
			c.elected.WithLabelValues(election).Inc()
		case event.HandOver:
			c.handOver.WithLabelValues(election).Observe(e.Duration.Seconds())
		case event.Suspended:
			setLeading(false)
			c.suspended.WithLabelValues(election).Inc()
		case event.Resumed:
			setLeading(true)
			c.resumed.WithLabelValues(election).Inc()
		case event.Lost:
			setLeading(false)
			c.lost.WithLabelValues(election, reason(e.Err)).Inc()
		case event.Ended:
			setLeading(false)
			c.ended.WithLabelValues(election, reason(e.Err)).Inc()
		case event.Checked:
			if e.Err != nil {
				c.checksFailed.WithLabelValues(election).Inc()
				return
			}
			c.check.WithLabelValues(election).Observe(e.Duration.Seconds())
		case event.Watched:
			c.watches.WithLabelValues(election).Inc()
		}
	}
}

// Observe counts the events of one candidate until events is closed, which is when the
// candidacy is over. election is the value of the label election. Call it on a separate goroutine
// before ElectLeader:
//
//	go collector.Observe("/election", candidate.Events())
func (c *Collector) Observe(election string, events <-chan event.Event) {
	record := c.Recorder(election)
	for e := range events {
		record(e)
	}
}
