package leaderelection

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// receiveAll returns the events that wait.
func receiveAll(c <-chan Event) (events []Event) {
	for len(c) > 0 {
		events = append(events, <-c)
	}
	return events
}

// missed returns the number of dropped events.
func missed(events []Event) (n int) {
	for _, e := range events {
		n += e.Missed
	}
	return n
}

// TestEventStream_DropsOldest fails if not the oldest events are dropped, or if the dropped events are
// not counted once.
func TestEventStream_DropsOldest(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	for i := range maxEvents + 10 {
		s.Add(Event{Kind: EventJoined, Duration: time.Duration(i)})
	}
	events := receiveAll(c)
	require.Len(t, events, maxEvents)
	for i, e := range events {
		require.Equal(t, time.Duration(10+i), e.Duration, "the order has changed")
		require.False(t, e.Time.IsZero())
	}
	require.Equal(t, 10, missed(events))
	s.Add(Event{Kind: EventJoined})
	require.Zero(t, missed(receiveAll(c)), "events are counted twice")
}

// TestEventStream_CountsDroppedEvents fails if dropped events are not counted because the events that
// have counted them were dropped as well.
func TestEventStream_CountsDroppedEvents(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	for range 5*maxEvents + 3 {
		s.Add(Event{Kind: EventWatchFailed})
	}
	require.Equal(t, 4*maxEvents+3, missed(receiveAll(c)))
}

// TestEventStream_DropsFrequentEventsFirst fails if frequent events displace other events.
func TestEventStream_DropsFrequentEventsFirst(t *testing.T) {
	for _, kind := range []EventKind{EventChecked, EventWatched, EventHeartbeat} {
		s := newEventStream(nil)
		c := s.C()
		s.Add(Event{Kind: EventElected, Token: 1})
		for range 1000 {
			s.Add(Event{Kind: kind})
		}
		s.Add(Event{Kind: EventLost})
		events := receiveAll(c)
		require.Len(t, events, maxFrequent+1)
		require.Equal(t, EventElected, events[0].Kind)
		last := events[len(events)-1]
		require.Equal(t, EventLost, last.Kind)
		require.Equal(t, 1000-(maxFrequent-1), last.Missed)
	}
}

// TestEventStream_Leadership fails if the events of a leadership do not alternate between suspended and
// resumed, or if its loss is not reported once.
func TestEventStream_Leadership(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	failed := errors.New("failed")
	for _, e := range []Event{
		{Kind: EventSuspended},
		{Kind: EventLost}, // there is no leadership
		{Kind: EventElected, Token: 3},
		{Kind: EventElected, Token: 3},
		{Kind: EventSuspended, Err: failed},
		{Kind: EventSuspended},
		{Kind: EventElected, Token: 3},
		{Kind: EventSuspended},
		{Kind: EventLost, Err: failed},
		{Kind: EventLost},
		{Kind: EventSuspended},
		{Kind: EventElected, Token: 5},
		{Kind: EventLost},
	} {
		s.Add(e)
	}
	events := receiveAll(c)
	for i := range events {
		events[i].Time = time.Time{}
	}
	require.Equal(t, []Event{
		{Kind: EventElected, Token: 3},
		{Kind: EventSuspended, Token: 3, Err: failed},
		{Kind: EventResumed, Token: 3},
		{Kind: EventSuspended, Token: 3},
		{Kind: EventLost, Token: 3, Err: failed},
		{Kind: EventElected, Token: 5},
		{Kind: EventLost, Token: 5},
	}, events)
}

// TestEventStream_Close fails if events that wait are lost, or if events are added after Close.
func TestEventStream_Close(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	s.Add(Event{Kind: EventJoined})
	s.Close()
	s.Close()
	s.Add(Event{Kind: EventEnded})
	e, open := <-c
	require.True(t, open)
	require.Equal(t, EventJoined, e.Kind)
	_, open = <-c
	require.False(t, open)
}

// TestEventStream_LateRequest fails if events after the first call of Events have a wrong token, because
// those before it were not delivered.
func TestEventStream_LateRequest(t *testing.T) {
	c := NewCandidacy(t.Context(), nil)
	require.NoError(t, c.Run(func(context.Context) error {
		c.Lead(3, nil)
		require.False(t, c.Observed())
		require.Empty(t, c.Events())
		require.True(t, c.Observed())
		return ErrResigned
	}))
	events := receiveAll(c.Events())
	require.Len(t, events, 2)
	require.Equal(t, EventLost, events[0].Kind)
	require.EqualValues(t, 3, events[0].Token)
	require.Equal(t, EventEnded, events[1].Kind)

	over := NewCandidacy(t.Context(), nil)
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
			s.Add(Event{Kind: EventJoined, Duration: time.Duration(i)})
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
	c := NewCandidacy(t.Context(), nil)
	c.SetID("a")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Report(Event{Kind: EventChecked})
		c.Join("a")
	}))
}

// TestEvent_String fails if the texts for logs change.
func TestEvent_String(t *testing.T) {
	for want, e := range map[string]Event{
		"joined a": {Kind: EventJoined, ID: "a"},
		"new leader a: b token 3 (2 were missed)": {Kind: EventNewLeader, ID: "a", Subject: "b", Token: 3, Missed: 2},
		"hand-over token 3 after 1s":              {Kind: EventHandOver, Token: 3, Duration: time.Second},
		"ended: candidate has resigned":           {Kind: EventEnded, Err: ErrResigned},
		"EventKind(0)":                            {},
		"EventKind(99)":                           {Kind: 99},
	} {
		require.Equal(t, want, e.String())
	}
}
