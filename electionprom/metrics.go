package electionprom

import "github.com/prometheus/client_golang/prometheus"

// metrics creates the metrics of a collector and keeps them for Describe and Collect.
type metrics struct {
	labels prometheus.Labels // labels of all metrics
	label  string            // name of the label for the election or the path
	all    []prometheus.Collector
}

const namespace = "leaderelection"

// The numbers of buckets of the histograms. The first bucket is 0.1 ms, a response time on a local ensemble.
// Each further bucket is four times as large.
const (
	shortBuckets = 9  // up to 6.5 s, which is more than a common session timeout
	longBuckets  = 14 // up to 1.8 h
)

func (m *metrics) counter(name, help string, more ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: m.labels,
	}, append([]string{m.label}, more...))
	m.all = append(m.all, v)
	return v
}

func (m *metrics) newGauge(name, help string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: m.labels,
	}, []string{m.label})
	m.all = append(m.all, v)
	return v
}

func (m *metrics) histogram(name, help string, buckets int) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: m.labels,
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, buckets),
	}, []string{m.label})
	m.all = append(m.all, v)
	return v
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, v := range m.all {
		v.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range m.all {
		v.Collect(to)
	}
}
