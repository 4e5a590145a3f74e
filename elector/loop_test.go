package elector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// The cells of the table in docs/elector.md, by what is received and the state.

func TestLeaderInNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.is(StateNotLeader)
		w.leads()
		w.happened("0s begin 1")
		w.is(StateLeader)
		w.stop()
		require.NoError(w, w.returned())
		w.happened("0s begin 1", "0s end 1")
		w.is(StateNotLeader)
	})
}

func TestLeaderInNotLeaderBeginFails(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.handler("begin", errBoom) }, func(w *world) {
		first := w.backend.now()
		w.leads()
		w.happened("0s begin 1", "0s error 1") // End is not called
		require.False(w, first.holds(), "given up at the backend")
		w.is(StateError)
		require.ErrorIs(w, w.e.Current().Err, ErrBegin)
		require.ErrorIs(w, w.e.Current().Err, errBoom)
		w.pass(30*time.Second - 1)
		require.Equal(w, 1, w.backend.candidates())
		w.pass(1)
		require.Equal(w, 2, w.backend.candidates())
		w.is(StateNotLeader)
		w.leads()
		w.happened("0s begin 1", "0s error 1", "30s begin 2")
	})
}

func TestLeaderInLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		l := w.leads()
		w.backend.now().tells(leaderelection.Status{Role: leaderelection.Leader, Leadership: l})
		w.happened("0s begin 1")
		w.is(StateLeader)
	})
}

// The end of the first was not told, as a backend of its own might forget.
func TestLeaderInLeaderOfAnotherLeadership(t *testing.T) {
	play(t, func(w *world) { w.e.End = w.handler("end", nil, errBoom) }, func(w *world) {
		w.leads()
		w.backend.now().leads()
		w.happened("0s begin 1", "0s end 1", "0s begin 2")
		w.is(StateLeader)
		w.leads() // and the end of the second fails first
		w.pass(5 * time.Second)
		w.happened("0s begin 1", "0s end 1", "0s begin 2", "0s end 2", "5s end 2", "5s error 2")
		w.is(StateError)
	})
}

func TestNotLeaderInNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().follows()
		w.backend.now().tells(leaderelection.Status{NowFollowing: "x"})
		w.happened()
		w.is(StateNotLeader)
		w.leads()
		w.happened("0s begin 1")
	})
}

func TestNotLeaderInLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.backend.now().follows()
		w.happened("0s begin 1", "0s end 1 lost")
		w.is(StateNotLeader)
		require.True(w, w.backend.now().holds(), "the candidacy goes on")
		w.leads()
		w.happened("0s begin 1", "0s end 1 lost", "0s begin 2")
		w.is(StateLeader)
	})
}

// Leadership.Done is enough: what follows may be long in coming.
func TestEndOfLeadershipIsNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.backend.now().loses(leaderelection.ErrLeaseExpired)
		w.happened("0s begin 1", "0s end 1 lost")
		w.is(StateNotLeader)
	})
}

// A status is enough too, of a backend that forgets to end the Leadership.
func TestStatusAloneIsNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.backend.now().tells(leaderelection.Status{})
		w.happened("0s begin 1", "0s end 1")
		w.is(StateNotLeader)
	})
}

func TestNotLeaderInLeaderEndFails(t *testing.T) {
	play(t, func(w *world) { w.e.End = w.handler("end", errBoom, errBoom) }, func(w *world) {
		first := w.backend.now()
		w.leads()
		first.follows()
		w.happened("0s begin 1", "0s end 1 lost")
		require.False(w, first.holds(), "not elected once more while it cannot begin")
		w.is(StateLeader)
		w.pass(10 * time.Second)
		w.happened("0s begin 1", "0s end 1 lost", "5s end 1 lost", "10s end 1 lost", "10s error 1")
		w.is(StateError)
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
		require.Equal(w, 2, w.backend.candidates())
	})
}

func TestErrorInNotLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().fails(leaderelection.ErrSessionExpired)
		w.happened("0s error -")
		w.is(StateError)
		require.ErrorIs(w, w.e.Current().Err, leaderelection.ErrSessionExpired)
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
		require.NoError(w, w.e.Current().Err)
		require.Equal(w, 2, w.backend.candidates())
	})
}

func TestErrorInLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.backend.now().fails(leaderelection.ErrSessionExpired)
		w.happened("0s begin 1", "0s end 1 lost", "0s error 1")
		w.is(StateError)
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
		w.leads()
		w.happened("0s begin 1", "0s end 1 lost", "0s error 1", "30s begin 2")
	})
}

func TestErrorInLeaderEndFails(t *testing.T) {
	play(t, func(w *world) { w.e.End = w.handler("end", errBoom) }, func(w *world) {
		w.leads()
		w.backend.now().fails(leaderelection.ErrSessionExpired)
		w.pass(5 * time.Second)
		w.happened("0s begin 1", "0s end 1 lost", "5s end 1 lost", "5s error 1")
		w.is(StateError)
		require.ErrorIs(w, w.e.Current().Err, leaderelection.ErrSessionExpired)
	})
}

// In ERROR there is no candidate: the next thing received is an error of the backend.
func TestErrorInError(t *testing.T) {
	play(t, func(w *world) { w.backend.fail = []error{errBoom, errBoom} }, func(w *world) {
		w.happened("0s error -")
		w.is(StateError)
		w.pass(30 * time.Second)
		w.happened("0s error -", "30s error -")
		w.is(StateError)
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
		require.Equal(w, 1, w.backend.candidates())
	})
}

func TestFailingErrorHandlerPostponesTheCandidacy(t *testing.T) {
	play(t, func(w *world) {
		failures := []error{errBoom, errBoom}
		w.e.Error = func(_ context.Context, _ *leaderelection.Leadership, err error) error {
			w.note("error: %v", err)
			if len(failures) == 0 {
				return nil
			}
			defer func() { failures = failures[1:] }()
			return failures[0]
		}
		w.backend.fail = []error{errors.New("first")}
	}, func(w *world) {
		w.pass(90*time.Second - 1)
		w.happened("0s error: first", "30s error: first", "1m0s error: first")
		w.is(StateError)
		w.pass(1)
		w.is(StateNotLeader)
	})
}

func TestTerminalErrorInEachState(t *testing.T) {
	for _, err := range terminal {
		play(t, func(w *world) { w.backend.fail = []error{err} }, func(w *world) {
			require.ErrorIs(w, w.returned(), ErrTerminal)
			require.ErrorIs(w, w.err, err)
			w.happened()
		})
		play(t, nil, func(w *world) {
			w.backend.now().fails(err)
			require.ErrorIs(w, w.returned(), ErrTerminal)
			require.ErrorIs(w, w.err, err)
			require.Equal(w, w.err, w.e.Current().Err)
			w.happened()
		})
		play(t, nil, func(w *world) {
			w.leads()
			w.backend.now().fails(err)
			require.ErrorIs(w, w.returned(), err)
			w.happened("0s begin 1", "0s end 1 lost")
		})
	}
}

func TestTerminalIsSettable(t *testing.T) {
	play(t, func(w *world) { w.e.Terminal = func(err error) bool { return errors.Is(err, errBoom) } }, func(w *world) {
		w.backend.now().fails(leaderelection.ErrElectionOver)
		w.pass(30 * time.Second)
		w.backend.now().fails(errBoom)
		require.ErrorIs(w, w.returned(), ErrTerminal)
		require.ErrorIs(w, w.err, errBoom)
	})
}

// Somebody else resigns the candidate: it stays away for a while.
func TestWithdrawnByAnother(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		require.NoError(w, w.backend.now().Resign())
		w.happened("0s begin 1", "0s end 1 lost", "0s error 1")
		require.ErrorIs(w, w.e.Current().Err, ErrWithdrawn)
		w.pass(30 * time.Second)
		require.True(w, w.backend.now().holds())
	})
}

func TestLeaderWithoutLeadershipIsTerminal(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().tells(leaderelection.Status{Role: leaderelection.Leader})
		require.ErrorIs(w, w.returned(), ErrTerminal)
		require.False(w, w.backend.now().holds())
	})
}

// ElectLeader returns without a final status.
func TestErrorOfElectLeader(t *testing.T) {
	play(t, nil, func(w *world) {
		c := w.backend.now()
		c.fault <- errBoom
		w.happened("0s error -")
		require.ErrorIs(w, w.e.Current().Err, errBoom)
	})
}
