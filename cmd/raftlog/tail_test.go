package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// events is a subscription that receives an event every three quarters of the timeout, and no
// more after the last one. Like a real subscription it ends when its context ends.
type events struct {
	c   chan client.Event
	err error
}

func (e *events) Events() <-chan client.Event { return e.c }
func (e *events) Err() error                  { return e.err }

const tailTimeout = time.Second

// tailed runs tail and returns how many events it has shown, how long it has run, and its error.
func tailed(once bool, kinds ...client.EventKind) (shown int, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	sub := &events{c: make(chan client.Event)}
	go func() {
		defer close(sub.c)
		for _, kind := range kinds {
			select {
			case <-time.After(tailTimeout / 4 * 3):
				sub.c <- client.Event{Kind: kind}
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
		sub.err = context.Cause(ctx)
	}()
	began := time.Now()
	err = tail(sub, cancel, tailTimeout, once, func(client.Event) error { shown++; return nil })
	took = time.Since(began)
	cancel(nil)
	synctest.Wait()
	return shown, took, err
}

// TestTailOnce: tail --once ends if no peer knows the last committed entry.
func TestTailOnce(t *testing.T) {
	const (
		entry, snapshot = client.EventEntry, client.EventSnapshot
		fresh, stale    = client.EventFresh, client.EventStale
	)
	synctest.Test(t, func(t *testing.T) {
		shown, took, err := tailed(true, entry, entry, snapshot, entry, fresh, entry)
		require.NoError(t, err)
		require.Equal(t, 5, shown, "it ends with the first EventFresh, and each entry restarts the timeout")
		require.Equal(t, 5*tailTimeout/4*3, took)

		shown, took, err = tailed(true, entry, stale)
		require.ErrorContains(t, err, "entries may be missing: within 1s (--timeout)")
		require.Equal(t, 2, shown)
		require.Equal(t, tailTimeout/4*3+tailTimeout, took, "EventStale does not restart the timeout")

		_, took, err = tailed(true)
		require.ErrorContains(t, err, "no peer has answered within 1s (--timeout)")
		require.Equal(t, tailTimeout, took)

		_, _, err = tailed(false)
		require.ErrorContains(t, err, "no peer has answered within 1s (--timeout)")

		_, took, err = tailed(false, entry, fresh)
		require.NoError(t, err)
		require.Greater(t, took, time.Hour, "without --once the timeout ends with the first answer")
	})
}
