package electionprom

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	timeout = 4 * time.Second
	oneWay  = time.Millisecond
)

// startCandidate starts a candidate on a new connection, and lets the collector c count the events of the
// candidate. It returns the candidate and its first status.
func startCandidate(t *testing.T, srv *zktest.Server, c *Collector) (*leaderelection.Election, leaderelection.Status) {
	t.Helper()
	conn, _, err := srv.Connect(timeout)
	require.NoError(t, err)
	e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
	require.NoError(t, err)
	go c.Observe("/election", e.Events())
	go e.ElectLeader()
	t.Cleanup(func() {
		_ = e.Resign()
		synctest.Wait()
	})
	return e, <-e.Status()
}

// requireMetrics requires that the metrics called names have exactly the values in want.
func requireMetrics(t *testing.T, c *Collector, want string, names ...string) {
	t.Helper()
	synctest.Wait()
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), names...))
}

// TestCollector_CountsHandOver checks that the collectors of a leader that resigns and of its successor count
// the hand-over, and that the gauge of leaders changes in both.
func TestCollector_CountsHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		srv.Delay(zktest.BothWays, oneWay)
		metrics, leaderMetrics := NewCollector(prometheus.Labels{"host": "a"}), NewCollector(nil)
		leader, s := startCandidate(t, srv, leaderMetrics)
		require.Equal(t, leaderelection.Leader, s.Role)
		successor, s := startCandidate(t, srv, metrics)
		require.Equal(t, leaderelection.Follower, s.Role)
		requireMetrics(t, metrics, `
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="/election",host="a"} 0
			`, "leaderelection_leader", "leaderelection_hand_over_seconds", "leaderelection_elected_total")

		require.NoError(t, leader.Resign())
		require.Equal(t, leaderelection.Leader, (<-successor.Status()).Role)
		requireMetrics(t, metrics, `
			# HELP leaderelection_elected_total Leaderships acquired.
			# TYPE leaderelection_elected_total counter
			leaderelection_elected_total{election="/election",host="a"} 1
			# HELP leaderelection_joined_total Candidates that have joined the election.
			# TYPE leaderelection_joined_total counter
			leaderelection_joined_total{election="/election",host="a"} 1
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="/election",host="a"} 1
			# HELP leaderelection_watches_total Watches set.
			# TYPE leaderelection_watches_total counter
			leaderelection_watches_total{election="/election",host="a"} 2
			# HELP leaderelection_hand_over_seconds Time from the notification that the predecessor left to leadership.
			# TYPE leaderelection_hand_over_seconds histogram
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.0001"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.0004"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.0016"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.0064"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.0256"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.1024"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="0.4096"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="1.6384"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="6.5536"} 1
			leaderelection_hand_over_seconds_bucket{election="/election",host="a",le="+Inf"} 1
			leaderelection_hand_over_seconds_sum{election="/election",host="a"} 0
			leaderelection_hand_over_seconds_count{election="/election",host="a"} 1
			`, "leaderelection_leader", "leaderelection_joined_total", "leaderelection_elected_total",
			"leaderelection_hand_over_seconds", "leaderelection_watches_total", "leaderelection_lost_total")
		requireMetrics(t, leaderMetrics, `
			# HELP leaderelection_ended_total Candidacies that have ended.
			# TYPE leaderelection_ended_total counter
			leaderelection_ended_total{election="/election",reason="resigned"} 1
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="/election"} 0
			# HELP leaderelection_lost_total Leaderships that have ended.
			# TYPE leaderelection_lost_total counter
			leaderelection_lost_total{election="/election",reason="resigned"} 1
			`, "leaderelection_leader", "leaderelection_lost_total", "leaderelection_ended_total",
			"leaderelection_hand_over_seconds")
	})
}

// TestCollector_CountsSuspensionsAndChecks checks that the collector counts the checks of a lease, and the
// suspension and the resumption of a leadership.
func TestCollector_CountsSuspensionsAndChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		srv.Delay(zktest.BothWays, oneWay)
		c := NewCollector(nil)
		e, s := startCandidate(t, srv, c)
		time.Sleep(timeout + timeout/16) // an instant between two checks
		requireMetrics(t, c, checkMetrics(8), "leaderelection_check_seconds", "leaderelection_checks_failed_total")

		srv.Blackhole(zktest.BothWays)
		<-s.Leadership.Done()
		requireMetrics(t, c, `
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="/election"} 0
			# HELP leaderelection_suspended_total Leaderships suspended because their lease expired.
			# TYPE leaderelection_suspended_total counter
			leaderelection_suspended_total{election="/election"} 1
			`, "leaderelection_leader", "leaderelection_suspended_total", "leaderelection_resumed_total", "leaderelection_lost_total")
		srv.Heal()
		for e.Current().Role != leaderelection.Leader {
			<-e.Status()
		}
		requireMetrics(t, c, `
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="/election"} 1
			# HELP leaderelection_resumed_total Suspended leaderships that were resumed.
			# TYPE leaderelection_resumed_total counter
			leaderelection_resumed_total{election="/election"} 1
			`, "leaderelection_leader", "leaderelection_resumed_total", "leaderelection_lost_total")
	})
}

// checkMetrics returns the expected metrics of n checks that take one round trip each.
func checkMetrics(n int) string {
	var b strings.Builder
	b.WriteString("# HELP leaderelection_check_seconds Response times of checks that extended a lease.\n" +
		"# TYPE leaderelection_check_seconds histogram\n")
	for _, le := range []string{"0.0001", "0.0004", "0.0016", "0.0064", "0.0256", "0.1024", "0.4096", "1.6384", "6.5536", "+Inf"} {
		count := n
		if le < "0.002" && le != "+Inf" {
			count = 0
		}
		fmt.Fprintf(&b, "leaderelection_check_seconds_bucket{election=\"/election\",le=%q} %d\n", le, count)
	}
	fmt.Fprintf(&b, "leaderelection_check_seconds_sum{election=\"/election\"} %v\n", 2*oneWay.Seconds()*float64(n))
	fmt.Fprintf(&b, "leaderelection_check_seconds_count{election=\"/election\"} %d\n", n)
	return b.String()
}

// TestCollector_RegistersWithPrometheus checks that Prometheus accepts the collector and its metrics.
func TestCollector_RegistersWithPrometheus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		c := NewCollector(prometheus.Labels{"service": "billing"})
		require.NoError(t, registry.Register(c))
		require.NoError(t, registry.Register(NewCollector(prometheus.Labels{"service": "mail"})))
		require.Error(t, registry.Register(NewCollector(prometheus.Labels{"election": "x"})))
		startCandidate(t, zktest.Start(t), c)
		time.Sleep(timeout)
		synctest.Wait()
		count, err := testutil.GatherAndCount(registry)
		require.NoError(t, err)
		require.Positive(t, count)
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}

// TestCollector_CountsMissedEvents checks that the collector counts failed checks and missed events, and that
// the gauge of leaders is right after missed events.
func TestCollector_CountsMissedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(timeout)
		require.NoError(t, err)
		c, release := NewCollector(nil), make(chan struct{})
		e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
		require.NoError(t, err)
		events, record := e.Events(), c.Recorder("/election")
		go func() {
			for e := range events {
				record(e)
				if e.Kind == event.Elected {
					<-release
				}
			}
		}()
		go e.ElectLeader()
		<-e.Status()
		srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 10}, zktest.Cut)
		time.Sleep(80*timeout/8 + timeout/16)
		close(release)
		time.Sleep(timeout / 8) // the next check reports the number of missed events
		synctest.Wait()
		require.Equal(t, 1.0, testutil.ToFloat64(c.checksFailed))
		require.Positive(t, testutil.ToFloat64(c.missed))
		require.Equal(t, 1.0, testutil.ToFloat64(c.leader))
		require.NoError(t, e.Resign())
		synctest.Wait()
		require.Equal(t, 0.0, testutil.ToFloat64(c.leader))
		require.Equal(t, 1.0, testutil.ToFloat64(c.ended))
	})
}

// TestCollector_CountsEventsOfChangefeed checks that the collector counts the events of an election on a
// changefeed.
func TestCollector_CountsEventsOfChangefeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewTable().Store("election")
		defer store.Close()
		e, err := changefeed.NewElection(store)
		require.NoError(t, err)
		c := NewCollector(nil)
		go c.Observe("jobs", e.Events())
		go e.ElectLeader()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1.0, testutil.ToFloat64(c.leader))
		require.Equal(t, 1.0, testutil.ToFloat64(c.joined))
		require.Equal(t, 1.0, testutil.ToFloat64(c.watches))
		require.Equal(t, 1, testutil.CollectAndCount(c.check))
		require.NoError(t, e.Resign())
		synctest.Wait()
		requireMetrics(t, c, `
			# HELP leaderelection_leader Candidates of this process that lead at this moment.
			# TYPE leaderelection_leader gauge
			leaderelection_leader{election="jobs"} 0
			# HELP leaderelection_lost_total Leaderships that have ended.
			# TYPE leaderelection_lost_total counter
			leaderelection_lost_total{election="jobs",reason="resigned"} 1
			`, "leaderelection_leader", "leaderelection_lost_total", "leaderelection_suspended_total")
	})
}

// TestReason_UnknownErrorIsOther checks that reason returns "other" for an unknown error, because each other
// value would be a separate time series.
func TestReason_UnknownErrorIsOther(t *testing.T) {
	require.Equal(t, "session_expired", reason(fmt.Errorf("x: %w", leaderelection.ErrSessionExpired)))
	require.Equal(t, "other", reason(errors.New("x")))
	require.Equal(t, "other", reason(nil))
}
