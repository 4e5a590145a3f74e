package main

// The metrics of a run, for Prometheus. docs/elector.md lists them.

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electionprom"
	"github.com/go-leaderelection/leaderelection/elector"
)

type metrics struct {
	registry  *prometheus.Registry
	elections *electionprom.Collector

	state             *prometheus.GaugeVec
	since             prometheus.Gauge
	terms             prometheus.Counter
	running           *prometheus.GaugeVec
	seconds           *prometheus.HistogramVec
	failures          *prometheus.CounterVec
	leading, programs prometheus.GaugeFunc
}

var states = []elector.State{elector.StateNotLeader, elector.StateLeader, elector.StateError}

func newMetrics(w *web) *metrics {
	election := prometheus.Labels{"election": w.election}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "elector", Name: name, Help: help, ConstLabels: election}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "elector", Name: name, Help: help, ConstLabels: election}
	}
	one := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	handler := []string{"handler"}
	m := &metrics{
		registry: prometheus.NewRegistry(), elections: electionprom.NewCollector(nil),
		state: prometheus.NewGaugeVec(gauge("state", "1 for the state, NOTLEADER, LEADER or ERROR, 0 for the others."), []string{"state"}),
		since: prometheus.NewGauge(gauge("state_entered_timestamp_seconds", "When the state was entered, since 1970.")),
		terms: prometheus.NewCounter(counter("terms_total", "Leaderships for which the begin command has succeeded.")),
		running: prometheus.NewGaugeVec(gauge("handler_running", "1 while the begin, end or error command runs, or, as work, the program."),
			handler),
		failures: prometheus.NewCounterVec(counter("handler_failures_total", "Calls that have failed; those that the end of leadership, or of elector, has interrupted are none."),
			handler),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "elector", Name: "handler_seconds", Help: "How long calls took.", ConstLabels: election,
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10), // to 44 minutes
		}, handler),
		leading: prometheus.NewGaugeFunc(gauge("leader", "1 while /leader answers with 200."), func() float64 {
			return one(w.leads() != nil)
		}),
		programs: prometheus.NewGaugeFunc(gauge("program_running", "1 while the program runs."), func() float64 {
			w.runner.mu.Lock()
			defer w.runner.mu.Unlock()
			return one(w.process != nil)
		}),
	}
	for _, h := range []string{handlerBegin, handlerWork, handlerEnd, handlerError} {
		m.running.WithLabelValues(h)
		m.failures.WithLabelValues(h)
	}
	m.registry.MustRegister(m.elections, m.state, m.since, m.terms, m.running, m.failures, m.seconds, m.leading, m.programs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// show shows the state that a report has.
func (m *metrics) show(r elector.Report) {
	for _, s := range states {
		m.state.WithLabelValues(string(s)).Set(0)
	}
	m.state.WithLabelValues(string(r.State)).Set(1)
	if !r.Since.IsZero() {
		m.since.Set(float64(r.Since.UnixMilli()) / 1000)
	}
}

const (
	handlerBegin = "begin"
	handlerWork  = "work"
	handlerEnd   = "end"
	handlerError = "error"
)

// record records the events of c until its candidacy is over or w is stopped.
func (w *web) record(c leaderelection.Candidate) {
	events, record := c.Events(), w.metrics.elections.Recorder(w.election)
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stopped: // c was created too late
		return
	default:
	}
	w.recording.Go(func() {
		for {
			select {
			case event, open := <-events:
				if !open {
					return
				}
				record(event)
			case <-w.stopped:
				return
			}
		}
	})
}

// attach counts the calls of e's handlers, records the events of its candidates, and notes the
// current leadership.
func (w *web) attach(e *elector.Elector) {
	create := e.NewCandidate
	e.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
		c, err := create(ctx)
		if err == nil && c != nil {
			w.record(c)
		}
		return c, err
	}
	begin, work, end, onError := e.Begin, e.Work, e.End, e.Error
	e.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
		err := w.call(handlerBegin, l, func() error { return begin(ctx, l) })
		if err == nil {
			w.mu.Lock()
			w.term = &begun{ctx, l}
			w.mu.Unlock()
			w.metrics.terms.Inc()
		}
		return err
	}
	if work != nil {
		e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			return w.call(handlerWork, l, func() error { return work(ctx, l) })
		}
	}
	e.End = func(ctx context.Context, l *leaderelection.Leadership) error {
		return w.call(handlerEnd, nil, func() error { return end(ctx, l) })
	}
	e.Error = func(ctx context.Context, l *leaderelection.Leadership, err error) error {
		return w.call(handlerError, nil, func() error { return onError(ctx, l, err) })
	}
}

// call calls a handler. An error is a failure unless l, if there is one, has ended, or the
// run has.
func (w *web) call(name string, l *leaderelection.Leadership, f func() error) error {
	running := w.metrics.running.WithLabelValues(name)
	running.Inc()
	defer running.Dec()
	began := time.Now()
	err := f()
	w.metrics.seconds.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil && !(name != handlerEnd && w.interrupted(l)) {
		w.metrics.failures.WithLabelValues(name).Inc()
	}
	return err
}

func (w *web) interrupted(l *leaderelection.Leadership) bool {
	select {
	case <-w.ending:
		return true
	default:
		return l != nil && l.Err() != nil
	}
}
