//go:build unix

package main

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/elector"
)

// TestMetrics_CountCandidateEvents checks that the metrics follow the events of a candidate, and that stopRecording
// ends the recording of events.
func TestMetrics_CountCandidateEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewTable().Store("election")
		defer store.Close()
		e := &elector.Elector{
			NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return changefeed.NewElection(store) },
		}
		w := newTestServer(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- e.Run(ctx) }()
		time.Sleep(time.Minute)
		requireMetric := func(line string) {
			t.Helper()
			_, text := getPage(w, "/metrics")
			require.Contains(t, text, line)
		}
		requireMetric(`leaderelection_leader{election="/e"} 1`)
		cancel()
		require.NoError(t, <-returned)
		synctest.Wait()
		requireMetric(`leaderelection_leader{election="/e"} 0`)

		w.metrics.stopRecording()
		late, err := changefeed.NewElection(store)
		require.NoError(t, err)
		w.metrics.recordCandidate(late) // this call must start no goroutine
		w.metrics.recording.Wait()
		require.NoError(t, late.Resign())
	})
}

// TestMetrics_CountHandlerFailures checks that the metrics count each failure of a handler, but not a handler that
// was interrupted because the leadership has ended.
func TestMetrics_CountHandlerFailures(t *testing.T) {
	result := io.ErrUnexpectedEOF
	handler := func(context.Context, *leaderelection.Leadership) error { return result }
	e := &elector.Elector{
		Begin: handler, End: handler,
		Error: func(context.Context, *leaderelection.Leadership, error) error { return result },
	}
	w := newTestServer(t, e)
	l, revoke := candidacy.NewLeadership(7, nil)
	require.ErrorIs(t, e.Begin(t.Context(), l), result)
	require.ErrorIs(t, e.End(t.Context(), l), result)
	require.ErrorIs(t, e.Error(t.Context(), l, nil), result)
	require.Nil(t, w.currentLeadership(), "begin has failed")
	revoke(leaderelection.ErrLeaseExpired)
	require.ErrorIs(t, e.Begin(t.Context(), l), result)
	require.ErrorIs(t, e.End(t.Context(), l), result)
	for name, want := range map[string]float64{handlerBegin: 1, handlerEnd: 2, handlerError: 1, handlerWork: 0} {
		require.Equal(t, want, testutil.ToFloat64(w.metrics.failures.WithLabelValues(name)), name)
	}
	require.Zero(t, testutil.ToFloat64(w.metrics.terms))
}
