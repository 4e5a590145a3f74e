package leaderelection

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
)

// receiveAll returns the events that wait.
func receiveAll(c <-chan event.Event) (events []event.Event) {
	for len(c) > 0 {
		events = append(events, <-c)
	}
	return events
}

// missed returns the number of dropped events.
func missed(events []event.Event) (n int) {
	for _, e := range events {
		n += e.Missed
	}
	return n
}

// TestEventStream_DropsOldest fails if not the oldest events are dropped, or if the dropped events are
// not counted once, although the events that have counted them are dropped as well.
func TestEventStream_DropsOldest(t *testing.T) {
	for _, dropped := range []int{10, 4*maxEvents + 3} {
		s := newEventStream(nil)
		c := s.C()
		for i := range maxEvents + dropped {
			s.Add(event.Event{Kind: event.Joined, Duration: time.Duration(i)})
		}
		events := receiveAll(c)
		require.Len(t, events, maxEvents)
		for i, e := range events {
			require.Equal(t, time.Duration(dropped+i), e.Duration, "the order has changed")
			require.False(t, e.Time.IsZero())
		}
		require.Equal(t, dropped, missed(events))
		s.Add(event.Event{Kind: event.Joined})
		require.Zero(t, missed(receiveAll(c)), "events are counted twice")
	}
}

// TestEventStream_DropsFrequentEventsFirst fails if frequent events displace other events.
func TestEventStream_DropsFrequentEventsFirst(t *testing.T) {
	for _, kind := range []event.Kind{event.Checked, event.Watched, event.Heartbeat} {
		s := newEventStream(nil)
		c := s.C()
		s.Add(event.Event{Kind: event.Elected, Token: 1})
		for range 1000 {
			s.Add(event.Event{Kind: kind})
		}
		s.Add(event.Event{Kind: event.Lost})
		events := receiveAll(c)
		require.Len(t, events, maxFrequent+1)
		require.Equal(t, event.Elected, events[0].Kind)
		last := events[len(events)-1]
		require.Equal(t, event.Lost, last.Kind)
		require.Equal(t, 1000-(maxFrequent-1), last.Missed)
	}
}

// TestEventStream_Leadership fails if the events of a leadership do not alternate between suspended and
// resumed, or if its loss is not reported once.
func TestEventStream_Leadership(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	failed := errors.New("failed")
	for _, e := range []event.Event{
		{Kind: event.Suspended},
		{Kind: event.Lost}, // there is no leadership
		{Kind: event.Elected, Token: 3},
		{Kind: event.Elected, Token: 3},
		{Kind: event.Suspended, Err: failed},
		{Kind: event.Suspended},
		{Kind: event.Elected, Token: 3},
		{Kind: event.Suspended},
		{Kind: event.Lost, Err: failed},
		{Kind: event.Lost},
		{Kind: event.Suspended},
		{Kind: event.Elected, Token: 5},
		{Kind: event.Lost},
	} {
		s.Add(e)
	}
	events := receiveAll(c)
	for i := range events {
		events[i].Time = time.Time{}
	}
	require.Equal(t, []event.Event{
		{Kind: event.Elected, Token: 3},
		{Kind: event.Suspended, Token: 3, Err: failed},
		{Kind: event.Resumed, Token: 3},
		{Kind: event.Suspended, Token: 3},
		{Kind: event.Lost, Token: 3, Err: failed},
		{Kind: event.Elected, Token: 5},
		{Kind: event.Lost, Token: 5},
	}, events)
}

// TestEventStream_Close fails if events that wait are lost, or if events are added after Close.
func TestEventStream_Close(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	s.Add(event.Event{Kind: event.Joined})
	s.Close()
	s.Close()
	s.Add(event.Event{Kind: event.Ended})
	e, open := <-c
	require.True(t, open)
	require.Equal(t, event.Joined, e.Kind)
	_, open = <-c
	require.False(t, open)
}

// TestEventStream_End fails if a leadership is not reported as lost before the end, or twice.
func TestEventStream_End(t *testing.T) {
	failed := errors.New("failed")
	for _, reported := range []bool{false, true} {
		s := newEventStream(nil)
		c := s.C()
		s.Add(event.Event{Kind: event.Elected, Token: 3})
		if reported {
			s.Add(event.Event{Kind: event.Lost, ID: "a", Err: failed})
		}
		s.End("a", failed)
		s.End("a", failed)
		events := receiveAll(c)
		require.Len(t, events, 3)
		for i, want := range []event.Event{
			{Kind: event.Lost, ID: "a", Token: 3, Err: failed},
			{Kind: event.Ended, ID: "a", Err: failed},
		} {
			require.False(t, events[1+i].Time.IsZero())
			events[1+i].Time = time.Time{}
			require.Equal(t, want, events[1+i])
		}
		_, open := <-c
		require.False(t, open)
	}
}

// TestEventStream_LateRequest fails if events after the first call of Events have a wrong token, because
// those before it were not delivered.
func TestEventStream_LateRequest(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	require.NoError(t, c.Run(func(context.Context) error {
		c.Lead(3, nil)
		require.False(t, c.Observed())
		require.Empty(t, c.Events())
		require.True(t, c.Observed())
		return ErrResigned
	}))
	events := receiveAll(c.Events())
	require.Len(t, events, 2)
	require.Equal(t, event.Lost, events[0].Kind)
	require.EqualValues(t, 3, events[0].Token)
	require.Equal(t, event.Ended, events[1].Kind)

	over := newCandidacy(t.Context(), nil)
	over.Stop(ErrResigned)
	_, open := <-over.Events()
	require.False(t, open)
}

// TestEventStream_ConcurrentReader fails if a concurrent reader receives events in the wrong order, or if
// an event is neither delivered nor counted.
func TestEventStream_ConcurrentReader(t *testing.T) {
	const n = 100_000
	s := newEventStream(nil)
	c := s.C()
	go func() {
		for i := range n {
			s.Add(event.Event{Kind: event.Joined, Duration: time.Duration(i)})
		}
		s.Close()
	}()
	count, last := 0, time.Duration(-1)
	for e := range c {
		count += 1 + e.Missed
		require.Greater(t, e.Duration, last)
		last = e.Duration
	}
	require.Equal(t, n, count)
}

// TestEventStream_WithoutReader fails if events need memory although Events was not called.
func TestEventStream_WithoutReader(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	c.SetID("a")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Report(event.Event{Kind: event.Checked})
		c.Join("a")
	}))
}
