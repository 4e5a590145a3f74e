package elector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// nextReport requires that a report is ready, and returns it.
func (h *harness) nextReport() Report {
	h.Helper()
	synctest.Wait()
	select {
	case r, open := <-h.elector.Reports():
		require.True(h, open, "the channel is closed")
		return r
	default:
		require.Fail(h, "there is no report")
		return Report{}
	}
}

// requireNoReport requires that no report is ready.
func (h *harness) requireNoReport() {
	h.Helper()
	synctest.Wait()
	select {
	case r, open := <-h.elector.Reports():
		require.Fail(h, "unexpected report", "%v %v", r, open)
	default:
	}
}

// TestReports_DeliversEachChange checks that Reports delivers each change of the state and each status.
func TestReports_DeliversEachChange(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		require.Equal(h, h.elector.Current(), h.nextReport(), "the current report comes first")
		h.requireNoReport()
		l := h.lead()
		r := h.nextReport()
		require.Equal(h, StateLeader, r.State)
		require.Same(h, l, r.Candidate.Leadership)
		h.backend.newest().suspend()
		r = h.nextReport()
		require.Equal(h, StateNotLeader, r.State)
		require.Equal(h, leaderelection.Suspended, r.Candidate.Role)
		h.backend.newest().publish(leaderelection.Status{CandidateID: "scripted", NowFollowing: "other"})
		require.Equal(h, "other", h.nextReport().Candidate.NowFollowing, "a status without a change of state")
		h.backend.newest().fail(errBoom)
		r = h.nextReport()
		require.Equal(h, StateError, r.State)
		require.ErrorIs(h, r.Err, errBoom)
		h.wait(30 * time.Second)
		require.Equal(h, StateNotLeader, h.nextReport().State)
		h.requireNoReport()
	})
}

// TestReports_DeliversOnlyNewestToSlowReader checks that a slow reader does not receive outdated reports, and
// receives the last report.
func TestReports_DeliversOnlyNewestToSlowReader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		c := h.elector.Reports()
		h.lead()
		h.backend.newest().suspend()
		h.wait(time.Second)
		h.backend.newest().fail(leaderelection.ErrElectionOver)
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		r := h.nextReport()
		require.Equal(h, StateNotLeader, r.State)
		require.Equal(h, h.err, r.Err)
		_, open := <-c
		require.False(h, open)
	})
}

// TestReports_DeliversLastReportAfterRun checks that a reader that calls Reports for the first time after Run
// receives the last report.
func TestReports_DeliversLastReportAfterRun(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().fail(leaderelection.ErrElectionOver)
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.ErrorIs(h, h.nextReport().Err, ErrTerminal)
		_, open := <-h.elector.Reports()
		require.False(h, open)
	})
	e := &Elector{EndTries: -1}
	require.Equal(t, Report{State: StateNotLeader}, <-e.Reports(), "before Run")
	err := e.Run(t.Context())
	require.Equal(t, err, (<-e.Reports()).Err)
	_, open := <-e.Reports()
	require.False(t, open)
}

// TestCurrent_ReturnsNotLeaderDuringBegin checks that Current returns the state NOTLEADER, and the status of
// the leader, while Begin runs.
func TestCurrent_ReturnsNotLeaderDuringBegin(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		since := h.elector.Current().Since
		h.wait(time.Second)
		l := h.lead()
		r := h.elector.Current()
		require.Equal(h, Report{StateNotLeader, since, h.backend.newest().Current(), nil}, r)
		require.Same(h, l, r.Candidate.Leadership)
	})
}

// TestCurrent_ReturnsStatusOfLastCandidate checks that Current returns the status of the last candidate until
// NewCandidate is called again, and a zero status after that.
func TestCurrent_ReturnsStatusOfLastCandidate(t *testing.T) {
	runElector(t, func(h *harness) { h.backend.results = []error{nil, errBoom} }, func(h *harness) {
		h.backend.newest().fail(errBoom)
		h.wait(time.Second)
		require.ErrorIs(h, h.elector.Current().Candidate.Err, errBoom)
		h.wait(30 * time.Second)
		require.Equal(h, StateError, h.elector.Current().State)
		require.Zero(h, h.elector.Current().Candidate)
	})
}
