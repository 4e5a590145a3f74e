package elector

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// What the elector that this one succeeds does wrongly, each shown to be absent. What
// concerns its command only (E3's signals, E6's flag, E11) is tested with the command.

// E1: an error of a handler deadlocked the loop.
func TestDefectE1HandlerErrorDeadlocks(t *testing.T) {
	for handler, set := range map[string]func(w *world){
		"begin": func(w *world) { w.e.Begin = w.handler("begin", errBoom) },
		"end":   func(w *world) { w.e.End = w.handler("end", errBoom, errBoom, errBoom) },
		"work": func(w *world) {
			calls := 0
			w.e.Work = func(ctx context.Context, _ *leaderelection.Leadership) error {
				if calls++; calls > 2 {
					<-ctx.Done()
				}
				return errBoom
			}
		},
		"error": func(w *world) {
			calls := 0
			w.e.Error = func(context.Context, *leaderelection.Leadership, error) error {
				if calls++; calls < 3 {
					return errBoom
				}
				return nil
			}
			w.backend.fail = []error{errBoom}
		},
	} {
		play(t, set, func(w *world) {
			for range 4 { // four messages: the original accepted two
				if w.backend.candidates() > 0 {
					w.leads()
					w.backend.now().follows()
				}
				w.pass(time.Minute)
			}
			w.leads()
			require.Equal(w, StateLeader, w.e.Current().State, handler)
			w.backend.now().follows()
		})
	}
}

// E2: Run ignored the backend's error and could not return.
func TestDefectE2RunIgnoresTheBackendsError(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.backend.now().fails(fmt.Errorf("%w: no more input", ErrTerminal))
		require.ErrorIs(w, w.returned(), ErrTerminal)
		require.ErrorContains(w, w.err, "no more input")
		w.happened("0s begin 1", "0s end 1 lost")
	})
}

// E3: after the end handler the process went on living.
func TestDefectE3RunDoesNotEndWithItsContext(t *testing.T) {
	play(t, nil, func(w *world) {
		w.leads()
		w.stop()
		require.NoError(w, w.returned())
		w.happened("0s begin 1", "0s end 1")
	})
}

// E4: on an error the lock was kept at the backend, and nobody led.
func TestDefectE4ErrorKeepsLeadershipAtTheBackend(t *testing.T) {
	for name, set := range map[string]func(m *member){
		"begin": func(m *member) {
			m.e.Begin = func(context.Context, *leaderelection.Leadership) error { return errBoom }
		},
		"work": func(m *member) {
			m.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
				time.Sleep(3 * time.Second)
				return errBoom
			}
		},
		"end": func(m *member) {
			m.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
				time.Sleep(3 * time.Second)
				return errBoom
			}
			m.e.End = func(context.Context, *leaderelection.Leadership) error { return errBoom }
		},
	} {
		t.Run(name, func(t *testing.T) {
			meet(t, func(w *company) {
				a := w.join("a", set)
				b := w.join("b", nil)
				w.pass(2 * time.Minute) // 12 tries of End
				require.Equal(t, StateLeader, b.e.Current().State)
				if name == "end" {
					require.ErrorIs(t, <-a.done, ErrEnd)
					return
				}
				require.Equal(t, StateNotLeader, a.e.Current().State)
				require.Equal(t, b.e.Current().Candidate.CandidateID, a.e.Current().Candidate.NowFollowing, "in line again")
			})
		})
	}
}

// E5: what was said before the error wait was obeyed after it.
func TestDefectE5StaleMessagesAreObeyedAfterTheErrorWait(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.handler("begin", errBoom) }, func(w *world) {
		first := w.backend.now()
		w.leads()
		w.is(StateError)
		first.leads()
		first.tells(leaderelection.Status{})
		first.leads()
		w.pass(time.Minute)
		w.happened("0s begin 1", "0s error 1")
		w.is(StateNotLeader)
	})
}

// A leadership that came and went while a handler was running is not begun.
func TestDefectE5StaleLeadershipIsNotBegun(t *testing.T) {
	play(t, func(w *world) {
		end := w.handler("end")
		w.e.End = func(ctx context.Context, l *leaderelection.Leadership) error {
			time.Sleep(10 * time.Second)
			return end(ctx, l)
		}
	}, func(w *world) {
		w.leads()
		c := w.backend.now()
		c.follows()
		c.leads()
		c.loses(leaderelection.ErrLeaseExpired)
		w.pass(time.Minute)
		w.happened("0s begin 1", "10s end 1 lost")
		w.leads()
		w.happened("0s begin 1", "10s end 1 lost", "1m0s begin 3")
	})
}

// E6: two without a name were both leaders. Candidates without one differ by themselves.
func TestDefectE6TwoWithoutNamesLead(t *testing.T) {
	meet(t, func(w *company) {
		a := w.join("a", nil, leaderelection.WithClientName(""))
		b := w.join("b", nil, leaderelection.WithClientName(""))
		w.happened("a begins")
		require.NotEqual(t, a.e.Current().Candidate.CandidateID, b.e.Current().Candidate.CandidateID)
		require.NotEmpty(t, b.e.Current().Candidate.NowFollowing)
	})
}

// E7: an ERROR before the first NOTLEADER, and a second one, were ignored.
func TestDefectE7ErrorsAreIgnored(t *testing.T) {
	play(t, nil, func(w *world) {
		for range 3 {
			w.backend.now().fails(errBoom)
			w.pass(30 * time.Second)
		}
		w.happened("0s error -", "30s error -", "1m0s error -")
	})
}

// E8: an error while making the candidate was ignored; on exit the lock was kept until
// its time was over.
func TestDefectE8ErrorOfTheBackendsMakingIsIgnored(t *testing.T) {
	play(t, func(w *world) { w.backend.fail = []error{errBoom} }, func(w *world) {
		w.happened("0s error -")
		require.ErrorIs(w, w.e.Current().Err, errBoom)
		w.pass(30 * time.Second)
		w.leads()
		w.happened("0s error -", "30s begin 1")
	})
}

func TestDefectE8LockIsKeptOnExit(t *testing.T) {
	meet(t, func(w *company) {
		a := w.join("a", nil)
		w.join("b", nil)
		before := time.Now()
		a.stop()
		require.NoError(t, <-a.done)
		w.happened("a begins", "a ends", "b begins")
		require.Equal(t, before, time.Now(), "no time passes on an idle fake network")
	})
}

// E9: handlers had no context and no limit: the loss of leadership could not interrupt
// them, and one that hung stopped everything.
func TestDefectE9HandlersCannotBeInterrupted(t *testing.T) {
	meet(t, func(w *company) {
		var interrupted time.Time
		a := w.join("a", func(m *member) {
			m.e.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
				<-ctx.Done()
				interrupted = time.Now()
				return ctx.Err()
			}
		})
		var began time.Time
		w.join("b", func(m *member) {
			m.e.Begin = func(context.Context, *leaderelection.Leadership) error { began = time.Now(); return nil }
		})
		a.cutOff()
		w.pass(20 * time.Second)
		require.False(t, interrupted.IsZero())
		require.True(t, interrupted.Before(began), "%v %v", interrupted, began)
	})
}

func TestDefectE9HangingEndStopsEverything(t *testing.T) {
	over := make(chan struct{})
	meet(t, func(w *company) {
		over = make(chan struct{})
		a := w.join("a", func(m *member) {
			m.e.End = func(context.Context, *leaderelection.Leadership) error { <-over; return nil }
		})
		b := w.join("b", nil)
		a.stop()
		w.pass(40 * time.Second)
		require.ErrorIs(t, <-a.done, ErrHung)
		require.Equal(t, StateLeader, b.e.Current().State)
		close(over)
	})
}

// E10: a holder that was cut off led on. Here its work ends before another's begins,
// also when the server that it talks to is the one that is cut off.
func TestDefectE10PartitionedHolderLeadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ensemble := zktest.Cluster(t, 3)
		t.Cleanup(func() { time.Sleep(time.Minute) })
		var ends, begins time.Time
		run := func(server int, work func(ctx context.Context, l *leaderelection.Leadership) error) {
			conn, _, err := ensemble.Server(server).Connect(session) // it knows no other
			require.NoError(t, err)
			e := &Elector{
				NewCandidate: func(context.Context) (leaderelection.Candidate, error) {
					return leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
				},
				Work: work,
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			t.Cleanup(func() { stop(); <-done })
			time.Sleep(time.Second)
		}
		cut := (ensemble.Leader().ID() + 1) % 3
		run(cut, func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			ends = time.Now()
			return ctx.Err()
		})
		run(ensemble.Leader().ID(), func(ctx context.Context, l *leaderelection.Leadership) error {
			if begins.IsZero() {
				begins = time.Now()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.Zero(t, begins)
		ensemble.Server(cut).Partition()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.False(t, begins.IsZero(), "nobody has followed")
		require.True(t, !ends.IsZero() && ends.Before(begins), "%v %v", ends, begins)
		ensemble.Server(cut).Heal()
	})
}
