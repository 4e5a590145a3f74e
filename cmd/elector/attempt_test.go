//go:build unix

package main

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
)

func TestTryAndTimeout(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	begin := []string{"--leader-begin-command", "echo begins", "--leader-end-command", "echo ends"}
	a := e.run("a", polite, "--try", "--timeout", "10m")
	a.says("started")

	tried := e.run("tried", "echo runs", append(begin, "--try")...)
	waited := e.run("waited", "echo runs", append(begin, "--timeout", "300ms")...)
	require.Equal(t, exitNobody, tried.exit())
	tried.logs("elector: not elected: another candidate is ahead: /jobs/one/")
	require.Equal(t, exitNobody, waited.exit())
	waited.logs("elector: not elected: the timeout of 300ms has elapsed")
	require.Empty(t, tried.out.text())
	require.Empty(t, waited.out.text())

	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	last := e.run("last", "echo runs; exit 7", "--try")
	last.says("runs")
	require.Equal(t, 7, last.exit())

	e.srv.Stop()
	cut := e.run("cut", "echo runs", "--timeout", "300ms", "--try")
	require.Equal(t, exitNobody, cut.exit())
	cut.logs("has elapsed: no session on zookeeper")
}

func TestAttemptEndsOnce(t *testing.T) {
	cancelled := 0
	r := &runner{}
	r.attempt.cancel = func() { cancelled++ }
	r.tried(elector.Report{Candidate: leaderelection.Status{CandidateID: "a"}})
	require.NoError(t, r.attempt.gaveUp(), "a candidate that knows no predecessor may be elected")
	failure := errors.New("connection lost")
	r.tried(elector.Report{State: elector.StateError, Err: failure})
	require.ErrorIs(t, r.attempt.gaveUp(), failure)
	require.Equal(t, exitFailed, exitCode(r.attempt.gaveUp()))
	r.tried(elector.Report{Candidate: leaderelection.Status{NowFollowing: "b"}})
	require.ErrorIs(t, r.attempt.gaveUp(), failure)
	require.False(t, r.attempt.admit(), "a leadership begins after the run has given up")
	require.Equal(t, 1, cancelled)

	r = &runner{}
	require.True(t, r.attempt.admit())
	r.tried(elector.Report{Candidate: leaderelection.Status{NowFollowing: "b"}})
	require.NoError(t, r.attempt.gaveUp(), "the first leadership has begun")
	require.True(t, r.attempt.admit())
}
