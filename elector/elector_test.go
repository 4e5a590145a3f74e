package elector

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The tests TestDefectE1 to TestDefectE10 reproduce defects of an older elector. The tests of package
// main in cmd/elector cover the defects of its command: the signals of E3, the flag of E6, and E11.

// TestDefectE1_HandlerErrorDeadlocks fails if an error of a handler blocks the loop.
func TestDefectE1_HandlerErrorDeadlocks(t *testing.T) {
	for name, configure := range map[string]func(h *harness){
		"begin": func(h *harness) { h.elector.Begin = h.handler("begin", errBoom) },
		"end":   func(h *harness) { h.elector.End = h.handler("end", errBoom, errBoom, errBoom) },
		"work": func(h *harness) {
			calls := 0
			h.elector.Work = func(ctx context.Context, _ *leaderelection.Leadership) error {
				if calls++; calls > 2 {
					<-ctx.Done()
				}
				return errBoom
			}
		},
		"error": func(h *harness) {
			calls := 0
			h.elector.Error = func(context.Context, *leaderelection.Leadership, error) error {
				if calls++; calls < 3 {
					return errBoom
				}
				return nil
			}
			h.backend.results = []error{errBoom}
		},
	} {
		runElector(t, configure, func(h *harness) {
			for range 4 { // the older elector handled two events
				if h.backend.count() > 0 {
					h.lead()
					h.backend.newest().suspend()
				}
				h.wait(time.Minute)
			}
			h.lead()
			require.Equal(h, StateLeader, h.elector.Current().State, name)
			h.backend.newest().suspend()
		})
	}
}

// TestDefectE2_BackendErrorIgnored fails if Run does not return after a permanent error of the backend.
func TestDefectE2_BackendErrorIgnored(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().fail(fmt.Errorf("%w: no more input", ErrTerminal))
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.ErrorContains(h, h.err, "no more input")
		h.requireEvents("0s begin 1", "0s end 1 lost")
	})
}

// TestDefectE3_RunContinuesAfterEnd fails if Run does not return after its context is done.
func TestDefectE3_RunContinuesAfterEnd(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s end 1")
	})
}

// TestDefectE4_LeadershipKeptAfterError fails if a candidate whose handler has failed keeps the
// leadership, so that no candidate leads.
func TestDefectE4_LeadershipKeptAfterError(t *testing.T) {
	for name, configure := range map[string]func(m *member){
		"begin": func(m *member) {
			m.elector.Begin = func(context.Context, *leaderelection.Leadership) error { return errBoom }
		},
		"work": func(m *member) {
			m.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
				time.Sleep(3 * time.Second)
				return errBoom
			}
		},
		"end": func(m *member) {
			m.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
				time.Sleep(3 * time.Second)
				return errBoom
			}
			m.elector.End = func(context.Context, *leaderelection.Leadership) error { return errBoom }
		},
	} {
		t.Run(name, func(t *testing.T) {
			runOnZooKeeper(t, func(h *zkHarness) {
				a := h.join("a", configure)
				b := h.join("b", nil)
				h.wait(2 * time.Minute) // 12 tries of End
				require.Equal(t, StateLeader, b.elector.Current().State)
				if name == "end" {
					require.ErrorIs(t, <-a.done, ErrEnd)
					return
				}
				require.Equal(t, StateNotLeader, a.elector.Current().State)
				require.Equal(t, b.elector.Current().Candidate.CandidateID, a.elector.Current().Candidate.NowFollowing, "it is queued again")
			})
		})
	}
}

// TestDefectE5_StaleEventsAfterErrorWait fails if events of an earlier candidacy are handled after
// ErrorWait.
func TestDefectE5_StaleEventsAfterErrorWait(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.handler("begin", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireState(StateError)
		first.lead()
		first.publish(leaderelection.Status{})
		first.lead()
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "0s error 1")
		h.requireState(StateNotLeader)
	})
}

// TestDefectE5_StaleLeadership fails if Begin is called for a leadership that was acquired and lost while
// a handler was running.
func TestDefectE5_StaleLeadership(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = sleep(10*time.Second, h.handler("end"))
	}, func(h *harness) {
		h.lead()
		c := h.backend.newest()
		c.suspend()
		c.lead()
		c.loseLeadership(leaderelection.ErrLeaseExpired)
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "10s end 1 lost")
		h.lead()
		h.requireEvents("0s begin 1", "10s end 1 lost", "1m0s begin 3")
	})
}

// TestDefectE6_CandidatesWithoutNames fails if two candidates without names are leaders at the same time.
func TestDefectE6_CandidatesWithoutNames(t *testing.T) {
	runOnZooKeeper(t, func(h *zkHarness) {
		a := h.join("a", nil, leaderelection.WithName(""))
		b := h.join("b", nil, leaderelection.WithName(""))
		h.requireEvents("a begins")
		require.NotEqual(t, a.elector.Current().Candidate.CandidateID, b.elector.Current().Candidate.CandidateID)
		require.NotEmpty(t, b.elector.Current().Candidate.NowFollowing)
	})
}

// TestDefectE7_ErrorsIgnored fails if an error before the first status, or a repeated one, is ignored.
func TestDefectE7_ErrorsIgnored(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		for range 3 {
			h.backend.newest().fail(errBoom)
			h.wait(30 * time.Second)
		}
		h.requireEvents("0s error -", "30s error -", "1m0s error -")
	})
}

// TestDefectE8_NewCandidateErrorIgnored fails if an error of NewCandidate is ignored.
func TestDefectE8_NewCandidateErrorIgnored(t *testing.T) {
	runElector(t, func(h *harness) { h.backend.results = []error{errBoom} }, func(h *harness) {
		h.requireEvents("0s error -")
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
		h.wait(30 * time.Second)
		h.lead()
		h.requireEvents("0s error -", "30s begin 1")
	})
}

// TestDefectE8_LeadershipKeptOnExit fails if the next leader has to wait for the session timeout.
func TestDefectE8_LeadershipKeptOnExit(t *testing.T) {
	runOnZooKeeper(t, func(h *zkHarness) {
		a := h.join("a", nil)
		h.join("b", nil)
		before := time.Now()
		a.stop()
		require.NoError(t, <-a.done)
		h.requireEvents("a begins", "a ends", "b begins")
		require.Equal(t, before, time.Now(), "the hand-over has waited for a timeout")
	})
}

// TestDefectE9_HandlerNotInterrupted fails if the loss of leadership does not interrupt a handler.
func TestDefectE9_HandlerNotInterrupted(t *testing.T) {
	runOnZooKeeper(t, func(h *zkHarness) {
		var interrupted time.Time
		a := h.join("a", func(m *member) {
			m.elector.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
				<-ctx.Done()
				interrupted = time.Now()
				return ctx.Err()
			}
		})
		var began time.Time
		h.join("b", func(m *member) {
			m.elector.Begin = func(context.Context, *leaderelection.Leadership) error { began = time.Now(); return nil }
		})
		a.isolate()
		h.wait(20 * time.Second)
		require.False(t, interrupted.IsZero())
		require.True(t, interrupted.Before(began), "%v %v", interrupted, began)
	})
}

// TestDefectE9_EndHangs fails if an End that hangs blocks the election.
func TestDefectE9_EndHangs(t *testing.T) {
	over := make(chan struct{})
	runOnZooKeeper(t, func(h *zkHarness) {
		over = make(chan struct{})
		a := h.join("a", func(m *member) {
			m.elector.End = func(context.Context, *leaderelection.Leadership) error { <-over; return nil }
		})
		b := h.join("b", nil)
		a.stop()
		h.wait(40 * time.Second)
		require.ErrorIs(t, <-a.done, ErrHung)
		require.Equal(t, StateLeader, b.elector.Current().State)
		close(over)
	})
}

// TestDefectE10_PartitionedLeader fails if the work of a partitioned leader ends after that of the next
// leader begins. Here the partitioned server still answers the leader.
func TestDefectE10_PartitionedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ensemble := zktest.StartEnsemble(t, 3)
		t.Cleanup(func() { time.Sleep(time.Minute) })
		var ends, begins time.Time
		run := func(server int, work func(ctx context.Context, l *leaderelection.Leadership) error) {
			conn, _, err := ensemble.Server(server).Connect(session) // to this server only
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
		partitioned := (ensemble.Leader().ID() + 1) % 3
		run(partitioned, func(ctx context.Context, l *leaderelection.Leadership) error {
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
		ensemble.Server(partitioned).Partition()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.False(t, begins.IsZero(), "there is no next leader")
		require.True(t, !ends.IsZero() && ends.Before(begins), "%v %v", ends, begins)
		ensemble.Server(partitioned).Heal()
	})
}

// TestRun_OnlyOnce fails if an Elector can run twice.
func TestRun_OnlyOnce(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		require.ErrorIs(h, h.elector.Run(h.Context()), leaderelection.ErrAlreadyStarted)
		h.stop()
		require.NoError(h, h.requireReturned())
		require.ErrorIs(h, h.elector.Run(h.Context()), leaderelection.ErrAlreadyStarted)
	})
}

// TestRun_InvalidFields fails if an invalid field is accepted.
func TestRun_InvalidFields(t *testing.T) {
	b := &scriptedBackend{}
	for _, e := range []*Elector{
		{},
		{NewCandidate: b.newCandidate, ErrorWait: -1},
		{NewCandidate: b.newCandidate, EndTries: -1},
		{NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return nil, nil }},
	} {
		require.Equal(t, StateNotLeader, e.Current().State)
		require.ErrorIs(t, e.Run(t.Context()), leaderelection.ErrInvalid)
	}
	require.ErrorIs(t, Lead(t.Context(), nil, nil), leaderelection.ErrInvalid)
}

// TestPing fails if the loop does not answer at each point at which it waits.
func TestPing(t *testing.T) {
	block := make(chan struct{})
	hang := func(context.Context, *leaderelection.Leadership) error { <-block; return nil }
	requirePing := func(h *harness) {
		h.Helper()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(h.Context(), time.Nanosecond)
		defer cancel()
		require.NoError(h, h.elector.Ping(ctx))
	}
	runElector(t, func(h *harness) {
		block = make(chan struct{})
		h.elector.Begin, h.elector.Work, h.elector.Grace = hang, hang, time.Hour
		h.elector.End = h.handler("end", errBoom)
		h.elector.EndPause = time.Hour
		require.ErrorIs(h, h.elector.Ping(h.Context()), ErrNotRunning)
	}, func(h *harness) {
		requirePing(h) // follower
		h.lead()
		requirePing(h) // Begin
		h.wait(time.Minute)
		requirePing(h) // Begin, after BeginTimeout
		block <- struct{}{}
		h.requireEvents("1m0s end 1")
		requirePing(h) // pause between two calls of End
		h.wait(time.Hour)
		h.requireState(StateError)
		requirePing(h) // ErrorWait
		h.wait(30 * time.Second)
		h.lead()
		block <- struct{}{}
		h.requireState(StateLeader)
		requirePing(h) // Work
		c := h.backend.newest()
		c.blocked = make(chan struct{})
		h.stop()
		requirePing(h) // Work, after its context is done
		close(block)
		h.requireRunning()
		requirePing(h) // Resign of the backend
		close(c.blocked)
		require.NoError(h, h.requireReturned())
		require.ErrorIs(h, h.elector.Ping(h.Context()), ErrNotRunning)
	})
}

// TestPing_LoopIsStuck fails if Ping returns nil although the loop is stuck, here in its logger.
func TestPing_LoopIsStuck(t *testing.T) {
	var log *blockingLog
	runElector(t, func(h *harness) {
		log = &blockingLog{proceed: make(chan struct{})}
		h.elector.Logger = slog.New(slog.NewTextHandler(log, nil))
	}, func(h *harness) {
		h.lead()
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, h.elector.Ping(ctx), context.DeadlineExceeded)
		close(log.proceed)
		synctest.Wait()
		require.NoError(h, h.elector.Ping(h.Context()))
	})
}

// blockingLog blocks when a leadership begins.
type blockingLog struct{ proceed chan struct{} }

func (l *blockingLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "msg=\"became leader\"") {
		<-l.proceed
	}
	return len(p), nil
}
