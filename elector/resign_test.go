package elector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

func TestAskedInLeader(t *testing.T) {
	play(t, func(w *world) {
		end := w.handler("end")
		w.e.End = func(ctx context.Context, l *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return end(ctx, l)
		}
		w.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			w.note("work ends %d", l.Token())
			return nil // asked, and not done with everything
		}
	}, func(w *world) {
		first := w.backend.now()
		w.leads()
		close(first.asked)
		w.is(StateLeader)
		require.True(w, first.holds(), "given up before End")
		w.pass(time.Second)
		require.False(w, first.holds())
		w.happened("0s begin 1", "0s work ends 1", "1s end 1")
		w.is(StateNotLeader)
		require.Equal(w, 2, w.backend.candidates(), "it does not take part again at once")
		w.leads()
		w.happened("0s begin 1", "0s work ends 1", "1s end 1", "1s begin 2")
	})
}

func TestAskedInNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		first := w.backend.now()
		close(first.asked)
		w.is(StateNotLeader)
		require.False(w, first.holds())
		require.Equal(w, 2, w.backend.candidates())
		w.happened()
	})
}

func TestAskedWhileBeginRuns(t *testing.T) {
	play(t, func(w *world) {
		begin := w.handler("begin")
		w.e.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return begin(ctx, l)
		}
	}, func(w *world) {
		w.leads()
		close(w.backend.now().asked)
		w.pass(time.Second)
		w.happened("1s begin 1", "1s end 1")
		require.Equal(w, 2, w.backend.candidates())
	})
}

// The end of Run's context comes first.
func TestAskedWhileRunEnds(t *testing.T) {
	play(t, func(w *world) {
		w.e.End = func(context.Context, *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return nil
		}
	}, func(w *world) {
		w.leads()
		close(w.backend.now().asked)
		w.pass(time.Second / 2)
		w.stop()
		w.pass(time.Second / 2)
		require.NoError(w, w.returned())
		require.Equal(w, 1, w.backend.candidates())
	})
}

func TestAskedAndEndFails(t *testing.T) {
	play(t, func(w *world) { w.e.End = w.handler("end", errBoom) }, func(w *world) {
		w.leads()
		close(w.backend.now().asked)
		w.pass(5 * time.Second)
		w.happened("0s begin 1", "0s end 1", "5s end 1", "5s error 1")
		w.is(StateError)
		require.Equal(w, 1, w.backend.candidates())
	})
}

func TestLeadIsAsked(t *testing.T) {
	plain(t, func(_ *world, ctx context.Context, l *leaderelection.Leadership) error { <-ctx.Done(); return nil }, func(w *world) {
		w.leads()
		close(w.backend.now().asked)
		require.ErrorIs(w, w.returned(), ErrWithdrawn)
		require.False(w, w.backend.now().holds())
	})
}

// TestAskedOnZooKeeper: who was asked stands behind the others, and leads after them.
func TestAskedOnZooKeeper(t *testing.T) {
	meet(t, func(w *company) {
		a, b := w.join("a", nil), w.join("b", nil)
		w.happened("a begins")
		conn, _, err := w.srv.Connect(session)
		require.NoError(t, err)
		ask := func(m *member) {
			require.NoError(t, leaderelection.AskToResign(conn, "/election", m.e.Current().Candidate.CandidateID))
			w.pass(0)
		}
		ask(a)
		w.happened("a begins", "a ends", "b begins")
		ask(b)
		w.happened("a begins", "a ends", "b begins", "b ends", "a begins")
		require.Equal(t, StateLeader, a.e.Current().State)
	})
}

// The candidacy ends by itself while End runs: that is an error as any.
func TestAskedAndTheBackendFails(t *testing.T) {
	play(t, func(w *world) {
		w.e.End = func(context.Context, *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return nil
		}
	}, func(w *world) {
		w.leads()
		close(w.backend.now().asked)
		w.pass(time.Second / 2)
		w.backend.now().fails(errBoom)
		w.pass(time.Second / 2)
		w.is(StateError)
		w.happened("0s begin 1", "1s error 1")
	})
}
