package elector

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// plain has Lead run f on a scripted candidate until the test is over.
func plain(t *testing.T, f func(w *world, ctx context.Context, l *leaderelection.Leadership) error, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, _ := w.backend.newCandidate(t.Context())
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		go func() {
			defer close(w.done)
			w.err = Lead(ctx, c, func(ctx context.Context, l *leaderelection.Leadership) error { return f(w, ctx, l) })
		}()
		synctest.Wait()
		test(w)
		stop()
		<-w.done
		require.False(t, w.backend.now().holds())
		require.Equal(t, 1, w.backend.candidates())
		require.Zero(t, w.backend.now().closed, "it is the caller's")
	})
}

func TestLeadReturnsWhatWasReturnedWhileLeading(t *testing.T) {
	for _, want := range []error{nil, errBoom, context.Canceled} {
		plain(t, func(_ *world, ctx context.Context, l *leaderelection.Leadership) error { return want }, func(w *world) {
			w.runs()
			w.leads()
			require.Equal(w, want, w.returned())
		})
	}
}

func TestLeadGoesOnAfterALoss(t *testing.T) {
	for _, returned := range []error{nil, errBoom} {
		plain(t, func(w *world, ctx context.Context, l *leaderelection.Leadership) error {
			w.note("leads %d", l.Token())
			<-ctx.Done()
			return returned
		}, func(w *world) {
			w.leads()
			w.backend.now().follows()
			w.runs()
			w.leads()
			w.happened("0s leads 1", "0s leads 2")
			w.backend.now().fails(leaderelection.ErrSessionExpired)
			require.ErrorIs(w, w.returned(), leaderelection.ErrSessionExpired)
		})
	}
}

func TestLeadReturnsWithTheContext(t *testing.T) {
	why := errors.New("why")
	lead := func(t *testing.T, leads bool, f func(ctx context.Context) error) (err error) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c, _ := w.backend.newCandidate(t.Context())
			ctx, stop := context.WithCancelCause(context.Background())
			go func() {
				synctest.Wait()
				if leads {
					w.leads()
				}
				stop(why)
			}()
			err = Lead(ctx, c, func(ctx context.Context, l *leaderelection.Leadership) error {
				defer func() { require.NoError(t, l.Err(), "handed over afterwards") }()
				return f(ctx)
			})
		})
		return err
	}
	require.Equal(t, why, lead(t, false, nil))
	require.Equal(t, why, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }))
	require.Equal(t, errBoom, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return errBoom }))
	require.NoError(t, lead(t, true, func(ctx context.Context) error { <-ctx.Done(); return nil }))
}

func TestLeadReturnsTheErrorThatEndsTheCandidacy(t *testing.T) {
	idle := func(_ *world, ctx context.Context, l *leaderelection.Leadership) error { <-ctx.Done(); return nil }
	plain(t, idle, func(w *world) {
		w.backend.now().fails(errBoom)
		require.ErrorIs(w, w.returned(), errBoom)
	})
	plain(t, idle, func(w *world) {
		w.leads()
		require.NoError(w, w.backend.now().Resign())
		require.ErrorIs(w, w.returned(), ErrWithdrawn)
	})
}

func TestLeadAbandonsWhatHangs(t *testing.T) {
	over := make(chan struct{})
	plain(t, func(w *world, ctx context.Context, l *leaderelection.Leadership) error { <-over; return nil }, func(w *world) {
		over = make(chan struct{})
		w.leads()
		w.backend.now().follows()
		w.pass(10 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		close(over)
	})
}
