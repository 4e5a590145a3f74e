package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electionprom"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/event"
)

// The values of the metrics' label handler.
const (
	handlerBegin = "begin"
	handlerWork  = "work"
	handlerEnd   = "end"
	handlerError = "error"
)

// metrics are the Prometheus metrics of a run. docs/elector.md lists them.
type metrics struct {
	registry *prometheus.Registry
	stopping <-chan struct{} // closed when this instance begins to hand over the leadership

	state             *prometheus.GaugeVec
	since             prometheus.Gauge
	terms             prometheus.Counter
	running           *prometheus.GaugeVec
	seconds           *prometheus.HistogramVec
	failures          *prometheus.CounterVec
	leading, programs prometheus.GaugeFunc

	// recordEvent returns a function that records the events of one candidate.
	recordEvent func() func(event.Event)

	mu        sync.Mutex
	stopped   chan struct{} // closed by stopRecording, when no more events are recorded
	recording sync.WaitGroup
}

// newMetrics returns the metrics of an election. leads reports whether this instance acts as the leader,
// and programRuns whether the program runs.
func newMetrics(election string, stopping <-chan struct{}, leads, programRuns func() bool) *metrics {
	labels := prometheus.Labels{"election": election}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "elector", Name: name, Help: help, ConstLabels: labels}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "elector", Name: name, Help: help, ConstLabels: labels}
	}
	gaugeFunc := func(name, help string, value func() bool) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(gauge(name, help), func() float64 {
			if value() {
				return 1
			}
			return 0
		})
	}
	handler := []string{"handler"}
	m := &metrics{
		registry: prometheus.NewRegistry(), stopping: stopping, stopped: make(chan struct{}),
		state:    prometheus.NewGaugeVec(gauge("state", "1 for the current state, NOTLEADER, LEADER or ERROR; 0 for the others."), []string{"state"}),
		since:    prometheus.NewGauge(gauge("state_entered_timestamp_seconds", "When the current state was entered, since 1970.")),
		terms:    prometheus.NewCounter(counter("terms_total", "Leaderships for which the begin command has succeeded.")),
		running:  prometheus.NewGaugeVec(gauge("handler_running", "1 while the begin, end or error command runs, or, as work, the program."), handler),
		failures: prometheus.NewCounterVec(counter("handler_failures_total", "Failed calls, without calls that were interrupted because leadership ended or elector exits."), handler),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "elector", Name: "handler_seconds", Help: "Duration of the calls.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10), // the largest bucket is 44 minutes
		}, handler),
		leading:  gaugeFunc("leader", "1 while /leader returns 200.", leads),
		programs: gaugeFunc("program_running", "1 while the program runs.", programRuns),
	}
	for _, h := range []string{handlerBegin, handlerWork, handlerEnd, handlerError} {
		m.running.WithLabelValues(h)
		m.failures.WithLabelValues(h)
	}
	elections := electionprom.NewCollector(nil)
	m.recordEvent = func() func(event.Event) { return elections.Recorder(election) }
	m.registry.MustRegister(elections, m.state, m.since, m.terms, m.running, m.failures, m.seconds, m.leading, m.programs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// setState sets the metric of the Elector's state to the state in the report r.
func (m *metrics) setState(r elector.Report) {
	for _, s := range []elector.State{elector.StateNotLeader, elector.StateLeader, elector.StateError} {
		m.state.WithLabelValues(string(s)).Set(0)
	}
	m.state.WithLabelValues(string(r.State)).Set(1)
	if !r.Since.IsZero() {
		m.since.Set(float64(r.Since.UnixMilli()) / 1000)
	}
}

// instrumentHandlers makes e measure the calls of its handlers, and record the events of its candidates.
func (m *metrics) instrumentHandlers(e *elector.Elector) {
	create, begin, work, end, onError := e.NewCandidate, e.Begin, e.Work, e.End, e.Error
	if create != nil {
		e.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
			c, err := create(ctx)
			if err == nil && c != nil {
				m.recordCandidate(c)
			}
			return c, err
		}
	}
	if begin != nil {
		e.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
			err := m.measureCall(handlerBegin, l, func() error { return begin(ctx, l) })
			if err == nil {
				m.terms.Inc()
			}
			return err
		}
	}
	if work != nil {
		e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			return m.measureCall(handlerWork, l, func() error { return work(ctx, l) })
		}
	}
	if end != nil {
		e.End = func(ctx context.Context, l *leaderelection.Leadership) error {
			return m.measureCall(handlerEnd, nil, func() error { return end(ctx, l) })
		}
	}
	if onError != nil {
		e.Error = func(ctx context.Context, l *leaderelection.Leadership, err error) error {
			return m.measureCall(handlerError, nil, func() error { return onError(ctx, l, err) })
		}
	}
}

// measureCall calls a handler and measures the call. An error of a handler other than End does not count as a failure
// if the run has begun to hand over, or if l is not nil and the leadership was lost.
func (m *metrics) measureCall(handler string, l *leaderelection.Leadership, f func() error) error {
	running := m.running.WithLabelValues(handler)
	running.Inc()
	defer running.Dec()
	start := time.Now()
	err := f()
	m.seconds.WithLabelValues(handler).Observe(time.Since(start).Seconds())
	if err != nil && (handler == handlerEnd || !m.isInterrupted(l)) {
		m.failures.WithLabelValues(handler).Inc()
	}
	return err
}

func (m *metrics) isInterrupted(l *leaderelection.Leadership) bool {
	select {
	case <-m.stopping:
		return true
	default:
		return l != nil && l.Err() != nil
	}
}

// recordCandidate starts to record the events of a candidate, until its candidacy has ended or stopRecording is
// called.
func (m *metrics) recordCandidate(c leaderelection.Candidate) {
	events, record := c.Events(), m.recordEvent()
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.stopped: // return, because events are not recorded any more
		return
	default:
	}
	m.recording.Go(func() {
		for {
			select {
			case event, open := <-events:
				if !open {
					return
				}
				record(event)
			case <-m.stopped:
				return
			}
		}
	})
}

// stopRecording stops the goroutines that record events.
func (m *metrics) stopRecording() {
	m.mu.Lock()
	close(m.stopped)
	m.mu.Unlock()
	m.recording.Wait()
}
