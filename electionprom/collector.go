// Package electionprom exports metrics of elections and recipes to Prometheus. A [Collector] counts the events
// of candidates, of all kinds of elections, and a [RecipeCollector] the events of recipes. Programs that do not
// import this package do not link the Prometheus client.
//
// The metrics of elections have the label election, for instance the path of the election node:
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
// The label reason is resigned, election_over, session_expired, candidate_deleted, connection_closed,
// unreachable, permission, node_exhausted or other.
//
// The kinds of [event.Event] document when each event is reported, and by which kinds of elections. The gauge
// is updated with a delay and must not be used for decisions: use leaderelection.Leadership instead. If the
// process of a leader is stopped, the gauge keeps its last value.
package electionprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-leaderelection/leaderelection/event"
)

// Collector collects metrics from the candidates whose events it observes: see
// [Collector.Observe]. Create it with [NewCollector] and register it once. Its methods are
// safe for concurrent use; they do not block and send no requests.
type Collector struct {
	metrics

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
	c := &Collector{metrics: metrics{labels: labels, label: labelElection}}
	c.leader = c.newGauge("leader", "Candidates of this process that lead at this moment.")
	c.joined = c.counter("joined_total", "Candidates that have joined the election.")
	c.elected = c.counter("elected_total", "Leaderships acquired.")
	c.suspended = c.counter("suspended_total", "Leaderships suspended because their lease expired.")
	c.resumed = c.counter("resumed_total", "Suspended leaderships that were resumed.")
	c.lost = c.counter("lost_total", "Leaderships that have ended.", labelReason)
	c.ended = c.counter("ended_total", "Candidacies that have ended.", labelReason)
	c.handOver = c.histogram("hand_over_seconds", "Time from the notification that the predecessor left to leadership.", shortBuckets)
	c.check = c.histogram("check_seconds", "Response times of checks that extended a lease.", shortBuckets)
	c.checksFailed = c.counter("checks_failed_total", "Checks that did not extend a lease.")
	c.watches = c.counter("watches_total", "Watches set.")
	c.missed = c.counter("missed_events_total", "Events that were dropped because they were not received in time.")
	return c
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
			c.leader.WithLabelValues(election) // exports the value 0 before the first event
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
