package elector

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// randomRun is an Elector whose backend and handlers behave at random, except that handlers do not hang. It
// checks the order of the calls.
type randomRun struct {
	*harness
	mu          sync.Mutex
	random      *rand.Rand
	noFailures  bool                       // all handlers succeed
	running     string                     // name of the handler that is running, or ""
	begun       *leaderelection.Leadership // the leadership for which End must be called
	endFailures int                        // number of consecutive failures of End
}

func (r *randomRun) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

// enterHandler records that a handler runs. It fails the test if another handler runs.
func (r *randomRun) enterHandler(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != "" {
		r.Errorf("%s is called while %s runs", name, r.running)
	}
	r.running = name
}

// leaveHandler waits for a random time, or until ctx is done, records that the handler has
// returned, and returns nil or errBoom at random.
func (r *randomRun) leaveHandler(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(r.intN(4)) * 7 * time.Second):
	case <-ctx.Done():
		time.Sleep(time.Duration(r.intN(3)) * time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = ""
	if !r.noFailures && r.random.IntN(4) == 0 {
		return errBoom
	}
	return nil
}

func (r *randomRun) begin(ctx context.Context, l *leaderelection.Leadership) error {
	r.enterHandler("begin")
	if l.Err() != nil {
		r.Errorf("begin is called with a leadership that was lost: %v", l.Err())
	}
	if r.begun != nil {
		r.Errorf("begin is called twice without end")
	}
	err := r.leaveHandler(ctx)
	if err == nil || ctx.Err() != nil {
		r.begun, r.endFailures = l, 0
	}
	return err
}

func (r *randomRun) work(ctx context.Context, l *leaderelection.Leadership) error {
	r.enterHandler("work")
	if r.begun != l {
		r.Errorf("work is called without begin")
	}
	if err := r.leaveHandler(ctx); err != nil {
		return err
	}
	r.enterHandler("work")
	<-ctx.Done()
	return r.leaveHandler(ctx)
}

func (r *randomRun) end(ctx context.Context, l *leaderelection.Leadership) error {
	r.enterHandler("end")
	if r.begun != l {
		r.Errorf("end is called without begin")
	}
	err := r.leaveHandler(ctx)
	if r.endFailures++; r.endFailures == 11 {
		err = nil
	}
	if err == nil {
		r.begun = nil
	}
	return err
}

func (r *randomRun) onError(ctx context.Context, _ *leaderelection.Leadership, _ error) error {
	r.enterHandler("error")
	if r.begun != nil || r.backend.countCandidates() > 0 && r.backend.newest().isActive() {
		r.Errorf("error is called before the candidate has resigned")
	}
	return r.leaveHandler(ctx)
}

// backendEvent makes the newest candidate report a random event, if there is a candidate.
func (r *randomRun) backendEvent() {
	if r.backend.countCandidates() == 0 {
		return
	}
	now := r.backend.newest()
	switch r.intN(8) {
	case 0, 1, 2:
		if now.isActive() {
			now.loseLeadership(leaderelection.ErrLeaseExpired)
			now.lead()
		}
	case 3:
		now.suspend()
	case 4:
		now.loseLeadership(leaderelection.ErrLeaseExpired)
	case 5:
		now.fail(leaderelection.ErrSessionExpired)
	case 6:
		_ = now.Resign()
	}
}

// TestElector_OrdersHandlerCallsAtRandomEvents checks that handlers do not overlap and are called in the right
// order, that End is not skipped, that no candidate remains after Run, and that the Elector leads after
// handlers and backend have stopped failing.
func TestElector_OrdersHandlerCallsAtRandomEvents(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := &randomRun{harness: newHarness(t), random: rand.New(rand.NewPCG(seed, 3))}
			r.elector.Begin, r.elector.End, r.elector.Error = r.begin, r.end, r.onError
			if seed%2 == 0 {
				r.elector.Work = r.work
			}
			r.elector.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
				if r.intN(5) == 0 {
					return nil, errBoom
				}
				return r.backend.newCandidate(ctx)
			}
			r.run(r.elector.Run)
			for range 30 {
				r.backendEvent()
				r.wait(time.Duration(r.intN(12)) * 3 * time.Second)
			}
			if seed%3 != 0 { // for the other seeds, the context of Run is cancelled in the middle of random events
				r.mu.Lock()
				r.noFailures = true
				r.mu.Unlock()
				for range 5 { // give the running handlers the time to return
					r.wait(time.Hour)
					if r.elector.Work == nil && r.elector.Current().State != StateLeader && r.backend.newest().isActive() {
						r.lead()
					}
				}
				if r.elector.Work == nil {
					require.Equal(t, StateLeader, r.elector.Current().State, "seed %d", seed)
				}
			}
			r.stop()
			r.wait(time.Hour)
			_ = r.requireReturned()
			require.Nil(t, r.begun, "seed %d", seed)
			if r.backend.countCandidates() > 0 {
				require.False(t, r.backend.newest().isActive())
			}
			require.False(t, t.Failed(), "seed %d", seed)
		})
	}
}
