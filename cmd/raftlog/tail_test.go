package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// eventList is the subscription that runPrintEvents passes to printEvents. It delivers an event every three
// quarters of the timeout, and ends when its context is done.
type eventList struct {
	c   chan client.Event
	err error
}

func (e *eventList) Events() <-chan client.Event { return e.c }

func (e *eventList) Err() error { return e.err }

const tailTimeout = time.Second

// runPrintEvents calls printEvents, and returns the number of printed events, the duration, and the
// error.
func runPrintEvents(once bool, kinds ...client.EventKind) (shown int, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	sub := &eventList{c: make(chan client.Event)}
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
	start := time.Now()
	err = printEvents(sub, cancel, tailTimeout, once, func(client.Event) error { shown++; return nil })
	took = time.Since(start)
	cancel(nil)
	synctest.Wait()
	return shown, took, err
}

// TestPrintEvents_OnceEndsAtLastCommittedEntry checks that printEvents with once, as in tail --once, returns at
// the last committed entry, and waits no longer than the timeout if no peer knows this entry.
func TestPrintEvents_OnceEndsAtLastCommittedEntry(t *testing.T) {
	const (
		entry, snapshot = client.EventEntry, client.EventSnapshot
		fresh, stale    = client.EventFresh, client.EventStale
	)
	synctest.Test(t, func(t *testing.T) {
		shown, took, err := runPrintEvents(true, entry, entry, snapshot, entry, fresh, entry)
		require.NoError(t, err)
		require.Equal(t, 5, shown, "printEvents returns at the first EventFresh, and each entry restarts the timeout")
		require.Equal(t, 5*tailTimeout/4*3, took)

		shown, took, err = runPrintEvents(true, entry, stale)
		require.ErrorContains(t, err, "entries may be missing: within 1s (--timeout)")
		require.Equal(t, 2, shown)
		require.Equal(t, tailTimeout/4*3+tailTimeout, took, "EventStale does not restart the timeout")

		_, took, err = runPrintEvents(true)
		require.ErrorContains(t, err, "no peer has answered within 1s (--timeout)")
		require.Equal(t, tailTimeout, took)

		_, _, err = runPrintEvents(false)
		require.ErrorContains(t, err, "no peer has answered within 1s (--timeout)")

		_, took, err = runPrintEvents(false, entry, fresh)
		require.NoError(t, err)
		require.Greater(t, took, time.Hour, "without --once the timeout ends with the first answer")
	})
}
