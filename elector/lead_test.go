package elector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// runLead calls Lead with f and a scripted candidate, in a bubble, until test returns.
func runLead(t *testing.T, f func(h *harness, ctx context.Context, l *leaderelection.Leadership) error, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		c, _ := h.backend.newCandidate(t.Context())
		h.run(func(ctx context.Context) error {
			return Lead(ctx, c, func(ctx context.Context, l *leaderelection.Leadership) error { return f(h, ctx, l) })
		})
		synctest.Wait()
		test(h)
		h.stop()
		<-h.done
		require.False(t, h.backend.newest().isActive())
		require.Equal(t, 1, h.backend.countCandidates())
		require.Zero(t, h.backend.newest().closed, "Lead has closed a candidate that it has not created")
	})
}

// TestLead_ReturnsResultOfFunction checks that Lead returns the unchanged result of a function that returns
// during the leadership.
func TestLead_ReturnsResultOfFunction(t *testing.T) {
	for _, want := range []error{nil, errBoom, context.Canceled} {
		runLead(t, func(_ *harness, ctx context.Context, l *leaderelection.Leadership) error { return want }, func(h *harness) {
			h.requireRunning()
			h.lead()
			require.Equal(h, want, h.requireReturned())
		})
	}
}

// TestLead_CallsFunctionAgainAfterLoss checks that Lead does not return after a loss of the leadership, and
// calls the function again in the next leadership.
func TestLead_CallsFunctionAgainAfterLoss(t *testing.T) {
	for _, returned := range []error{nil, errBoom} {
		runLead(t, func(h *harness, ctx context.Context, l *leaderelection.Leadership) error {
			h.record("leads %d", l.Token())
			<-ctx.Done()
			return returned
		}, func(h *harness) {
			h.lead()
			h.backend.newest().suspend()
			h.requireRunning()
			h.lead()
			h.requireEvents("0s leads 1", "0s leads 2")
			h.backend.newest().fail(leaderelection.ErrSessionExpired)
			require.ErrorIs(h, h.requireReturned(), leaderelection.ErrSessionExpired)
		})
	}
}

// TestLead_ReturnsNoErrorOfContext checks that Lead returns nil if its context is done and the function returns
// nil or the error of the context, and otherwise the error of the function.
func TestLead_ReturnsNoErrorOfContext(t *testing.T) {
	cause := errors.New("cause")
	lead := func(t *testing.T, elected bool, f func(ctx context.Context) error) (err error) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			c, _ := h.backend.newCandidate(t.Context())
			ctx, stop := context.WithCancelCause(context.Background())
			go func() {
				synctest.Wait()
				if elected {
					h.lead()
				}
				stop(cause)
			}()
			err = Lead(ctx, c, func(ctx context.Context, l *leaderelection.Leadership) error {
				defer func() { require.NoError(t, l.Err(), "the candidate has resigned before the function returned") }()
				return f(ctx)
			})
		})
		return err
	}
	require.NoError(t, lead(t, false, nil))
	require.NoError(t, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }))
	require.NoError(t, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("work: %w", ctx.Err()) }))
	require.Equal(t, errBoom, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return errBoom }))
	require.NoError(t, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return nil }))
}

// TestLead_ReturnsErrorOfEndedCandidacy checks that Lead returns the error that has ended the candidacy.
func TestLead_ReturnsErrorOfEndedCandidacy(t *testing.T) {
	idle := func(_ *harness, ctx context.Context, l *leaderelection.Leadership) error { <-ctx.Done(); return nil }
	runLead(t, idle, func(h *harness) {
		h.backend.newest().fail(errBoom)
		require.ErrorIs(h, h.requireReturned(), errBoom)
	})
	runLead(t, idle, func(h *harness) {
		h.lead()
		require.NoError(h, h.backend.newest().Resign())
		require.ErrorIs(h, h.requireReturned(), ErrWithdrawn)
	})
}

// TestLead_AbandonsHangingFunction checks that Lead waits no longer than ten seconds for a function that
// ignores its context.
func TestLead_AbandonsHangingFunction(t *testing.T) {
	hang := func(h *harness, ctx context.Context, l *leaderelection.Leadership) error {
		return h.newHangingHandler("work")(ctx, l)
	}
	runLead(t, hang, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.wait(10 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
	})
}

// TestLead_RejectsUsedCandidate checks that Lead rejects a candidate that is running or was used, and that
// the rejected call does not resign the candidate, receive its statuses or call the function.
func TestLead_RejectsUsedCandidate(t *testing.T) {
	never := func(context.Context, *leaderelection.Leadership) error { panic("the function was called") }
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	requireRejected := func(t *testing.T, c leaderelection.Candidate) {
		for range 2 {
			err := Lead(context.Background(), c, never)
			require.ErrorIs(t, err, leaderelection.ErrAlreadyStarted)
			require.True(t, IsTerminal(err))
			e := &Elector{NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return c, nil }, Work: never}
			err = e.Run(context.Background())
			require.ErrorIs(t, err, leaderelection.ErrAlreadyStarted)
			require.ErrorIs(t, err, ErrTerminal)
			if err := Lead(cancelled, c, never); err != nil { // Lead returns nil because its context is done, or the error because the candidate was used
				require.ErrorIs(t, err, leaderelection.ErrAlreadyStarted)
			}
		}
	}
	work := func(h *harness, ctx context.Context, l *leaderelection.Leadership) error {
		h.record("leads %d", l.Token())
		<-ctx.Done()
		return context.Cause(ctx)
	}
	runLead(t, work, func(h *harness) {
		c := h.backend.newest()
		requireRejected(h.T, c) // the candidate has published no status yet
		leadership := h.lead()
		requireRejected(h.T, c)
		require.NoError(h, leadership.Err())
		c.suspend()
		requireRejected(h.T, c)
		h.lead()
		h.requireRunning()
		h.requireEvents("0s leads 1", "0s leads 2")
		h.stop()
		require.NoError(h, h.requireReturned())
		requireRejected(h.T, c)
	})
	runLead(t, work, func(h *harness) {
		h.backend.newest().fail(errBoom)
		require.ErrorIs(h, h.requireReturned(), errBoom)
		requireRejected(h.T, h.backend.newest())
	})
	synctest.Test(t, func(t *testing.T) { // the program has called ElectLeader, and has not received its status yet
		h := newHarness(t)
		_, _ = h.backend.newCandidate(t.Context())
		c := h.backend.newest()
		ended := make(chan error)
		go func() { ended <- c.ElectLeader() }()
		synctest.Wait()
		leadership := h.lead()
		requireRejected(t, c)
		require.Equal(t, leadership, (<-c.Status()).Leadership)
		require.NoError(t, leadership.Err())
		c.fail(errBoom)
		require.Equal(t, errBoom, <-ended)
		requireRejected(t, c)
		require.Equal(t, errBoom, (<-c.Status()).Err)
	})
}
