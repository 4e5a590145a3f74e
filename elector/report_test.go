package elector

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// next is what Reports has now.
func (w *world) next() Report {
	w.Helper()
	synctest.Wait()
	select {
	case r, ok := <-w.e.Reports():
		require.True(w, ok, "the channel is closed")
		return r
	default:
		require.Fail(w, "there is no report")
		return Report{}
	}
}

// quiet requires that Reports has nothing.
func (w *world) quiet() {
	w.Helper()
	synctest.Wait()
	select {
	case r, ok := <-w.e.Reports():
		require.Fail(w, "unexpected", "%v %v", r, ok)
	default:
	}
}

func TestReportsFollowTheState(t *testing.T) {
	play(t, nil, func(w *world) {
		require.Equal(w, w.e.Current(), w.next(), "the one of now")
		w.quiet()
		l := w.leads()
		r := w.next()
		require.Equal(w, StateLeader, r.State)
		require.Same(w, l, r.Candidate.Leadership)
		w.backend.now().follows()
		r = w.next()
		require.Equal(w, StateNotLeader, r.State)
		require.Equal(w, leaderelection.Suspended, r.Candidate.Role)
		w.backend.now().tells(leaderelection.Status{CandidateID: "scripted", NowFollowing: "other"})
		require.Equal(w, "other", w.next().Candidate.NowFollowing, "a status without a change of state")
		w.backend.now().fails(errBoom)
		r = w.next()
		require.Equal(w, StateError, r.State)
		require.ErrorIs(w, r.Err, errBoom)
		w.pass(30 * time.Second)
		require.Equal(w, StateNotLeader, w.next().State)
		w.quiet()
	})
}

// A late reader hears of the newest only, and then of the end.
func TestReportsOfALateReader(t *testing.T) {
	play(t, nil, func(w *world) {
		c := w.e.Reports()
		w.leads()
		w.backend.now().follows()
		w.pass(time.Second)
		w.backend.now().fails(leaderelection.ErrElectionOver)
		require.ErrorIs(w, w.returned(), ErrTerminal)
		r := w.next()
		require.Equal(w, StateNotLeader, r.State)
		require.Equal(w, w.err, r.Err)
		_, open := <-c
		require.False(w, open)
	})
}

// Whoever comes after the end hears of it all the same.
func TestReportsAfterTheEnd(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().fails(leaderelection.ErrElectionOver)
		require.ErrorIs(w, w.returned(), ErrTerminal)
		require.ErrorIs(w, w.next().Err, ErrTerminal)
		_, open := <-w.e.Reports()
		require.False(w, open)
	})
	e := &Elector{EndTries: -1}
	require.Equal(t, Report{State: StateNotLeader}, <-e.Reports(), "before Run")
	err := e.Run(t.Context())
	require.Equal(t, err, (<-e.Reports()).Err)
	_, open := <-e.Reports()
	require.False(t, open)
}

// The loop answers wherever it waits.
func TestPing(t *testing.T) {
	block := make(chan struct{})
	hang := func(context.Context, *leaderelection.Leadership) error { <-block; return nil }
	responds := func(w *world) {
		w.Helper()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Nanosecond)
		defer cancel()
		require.NoError(w, w.e.Ping(ctx))
	}
	play(t, func(w *world) {
		block = make(chan struct{})
		w.e.Begin, w.e.Work, w.e.Grace = hang, hang, time.Hour
		w.e.End = w.handler("end", errBoom)
		w.e.EndPause = time.Hour
		require.ErrorIs(w, w.e.Ping(w.Context()), ErrNotRunning)
	}, func(w *world) {
		responds(w) // as a follower
		w.leads()
		responds(w) // in Begin
		w.pass(time.Minute)
		responds(w) // in Begin, after its time
		block <- struct{}{}
		w.happened("1m0s end 1")
		responds(w) // between two tries of End
		w.pass(time.Hour)
		w.is(StateError)
		responds(w) // before the next candidacy
		w.pass(30 * time.Second)
		w.leads()
		block <- struct{}{}
		w.is(StateLeader)
		responds(w) // in Work
		c := w.backend.now()
		c.stuck = make(chan struct{})
		w.stop()
		responds(w) // waits for Work
		close(block)
		w.runs()
		responds(w) // waits for the backend
		close(c.stuck)
		require.NoError(w, w.returned())
		require.ErrorIs(w, w.e.Ping(w.Context()), ErrNotRunning)
	})
}

// A loop that is stuck, here in a log that blocks, does not answer.
func TestDoesNotRespond(t *testing.T) {
	var log *slow
	play(t, func(w *world) {
		log = &slow{proceed: make(chan struct{})}
		w.e.Log = slog.New(slog.NewTextHandler(log, nil))
	}, func(w *world) {
		w.leads()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		require.ErrorIs(w, w.e.Ping(ctx), context.DeadlineExceeded)
		close(log.proceed)
		synctest.Wait()
		require.NoError(w, w.e.Ping(w.Context()))
	})
}

// slow blocks at the first line of a leadership.
type slow struct{ proceed chan struct{} }

func (s *slow) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "msg=\"became leader\"") {
		<-s.proceed
	}
	return len(p), nil
}

// A handler may use its grace: that is no error.
func TestGraceIsNoError(t *testing.T) {
	var log *logged
	play(t, func(w *world) { w.e.Work, log = w.hanging("work"), w.logged() }, func(w *world) {
		w.leads()
		w.stop()
		w.pass(10*time.Second - 1)
		require.Contains(w, log.String(), "still running")
		require.NotContains(w, log.String(), "level=ERROR")
		w.pass(1)
		require.Contains(w, log.String(), "level=ERROR")
		require.ErrorIs(w, w.returned(), ErrHung)
	})
}
