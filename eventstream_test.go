package leaderelection

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// received returns the events that wait.
func received(c <-chan Event) (events []Event) {
	for len(c) > 0 {
		events = append(events, <-c)
	}
	return events
}

func missed(events []Event) (n int) {
	for _, e := range events {
		n += e.Missed
	}
	return n
}

func TestEventStreamDropsTheOldest(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	for i := range maxEvents + 10 {
		s.Add(Event{Kind: EventJoined, Duration: time.Duration(i)})
	}
	events := received(c)
	require.Len(t, events, maxEvents)
	for i, e := range events {
		require.Equal(t, time.Duration(10+i), e.Duration, "the order is kept")
		require.False(t, e.Time.IsZero())
	}
	require.Equal(t, 10, missed(events))
	s.Add(Event{Kind: EventJoined})
	require.Zero(t, missed(received(c)), "they are counted once")
}

// Dropped events are counted even if those that counted them are dropped as well.
func TestEventStreamCountsAllDroppedEvents(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	for range 5*maxEvents + 3 {
		s.Add(Event{Kind: EventWatchFailed})
	}
	require.Equal(t, 4*maxEvents+3, missed(received(c)))
}

// Frequent events leave room for the others.
func TestEventStreamDropsFrequentEventsFirst(t *testing.T) {
	for _, kind := range []EventKind{EventChecked, EventWatched, EventHeartbeat} {
		s := newEventStream(nil)
		c := s.C()
		s.Add(Event{Kind: EventElected, Token: 1})
		for range 1000 {
			s.Add(Event{Kind: kind})
		}
		s.Add(Event{Kind: EventLost})
		events := received(c)
		require.Len(t, events, maxFrequent+1)
		require.Equal(t, EventElected, events[0].Kind)
		last := events[len(events)-1]
		require.Equal(t, EventLost, last.Kind)
		require.Equal(t, 1000-(maxFrequent-1), last.Missed)
	}
}

// A leadership is elected, suspended and resumed in turns, and lost once.
func TestEventStreamOfALeadership(t *testing.T) {
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
	events := received(c)
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

func TestEventStreamIsClosed(t *testing.T) {
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

// Events before the first call are not delivered, but those after it still have the right token.
func TestEventsAreRequestedLate(t *testing.T) {
	c := NewCandidacy(t.Context(), nil)
	require.NoError(t, c.Run(func(context.Context) error {
		c.Lead(3, nil)
		require.False(t, c.Observed())
		require.Empty(t, c.Events())
		require.True(t, c.Observed())
		return ErrResigned
	}))
	events := received(c.Events())
	require.Len(t, events, 2)
	require.Equal(t, EventLost, events[0].Kind)
	require.EqualValues(t, 3, events[0].Token)
	require.Equal(t, EventEnded, events[1].Kind)

	over := NewCandidacy(t.Context(), nil)
	over.Stop(ErrResigned)
	_, open := <-over.Events()
	require.False(t, open)
}

// A reader that receives at the same time gets the events in order, and each is delivered or
// counted.
func TestEventStreamIsReadAtTheSameTime(t *testing.T) {
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

func TestNoEventsWithoutAReader(t *testing.T) {
	c := NewCandidacy(t.Context(), nil)
	c.SetID("a")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Report(Event{Kind: EventChecked})
		c.Join("a")
	}))
}

func TestEventString(t *testing.T) {
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
