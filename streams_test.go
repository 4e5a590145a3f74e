package leaderelection

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
)

func leadingStatus(token int64) Status {
	grant, _ := newLeadership(token, nil)
	return Status{Role: Leader, Leadership: grant}
}

func receiveStatus(t *testing.T, f *statusFeed) Status {
	t.Helper()
	select {
	case s, ok := <-f.C():
		require.True(t, ok, "the channel is closed")
		return s
	case <-time.After(time.Minute):
		require.Fail(t, "nothing to read")
		return Status{}
	}
}

func requireClosed(t *testing.T, f *statusFeed) {
	t.Helper()
	select {
	case s, ok := <-f.C():
		require.False(t, ok, "unexpected %v", s)
	default:
		require.Fail(t, "the channel is open")
	}
}

// TestStatusFeed_SlowReaderReceivesNewest checks that a reader that receives nothing while three statuses are
// published receives only the last of them.
func TestStatusFeed_SlowReaderReceivesNewest(t *testing.T) {
	f := newStatusFeed()
	f.Publish(Status{NowFollowing: "a"})
	f.Publish(Status{NowFollowing: "b"})
	last := leadingStatus(7)
	f.Publish(last)
	require.Equal(t, last, f.Current())
	require.Equal(t, last, receiveStatus(t, f))
	f.Withdraw()
	requireClosed(t, f)
}

// TestStatusFeed_DeliversLossOfReceivedLeadership checks that a later status does not replace the loss of a
// leadership that the reader has received.
func TestStatusFeed_DeliversLossOfReceivedLeadership(t *testing.T) {
	f := newStatusFeed()
	first, again := leadingStatus(7), leadingStatus(7)
	f.Publish(first)
	require.Equal(t, first, receiveStatus(t, f))
	f.Publish(Status{Role: Suspended})
	f.Publish(again)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, again, receiveStatus(t, f))

	// A reader that has not received a leadership does not receive its loss.
	f.Publish(Status{Role: Suspended})
	f.Publish(leadingStatus(7))
	f.Publish(Status{Role: Suspended})
	third := leadingStatus(7)
	f.Publish(third)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, third, receiveStatus(t, f))
}

// TestStatusFeed_FinalStatusIsLast checks that the reader receives the final status instead of an unread one,
// and that later calls deliver nothing.
func TestStatusFeed_FinalStatusIsLast(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leadingStatus(1))
	receiveStatus(t, f)
	f.Publish(Status{Role: Suspended})
	f.Finish(Status{Err: ErrSessionExpired})
	require.ErrorIs(t, receiveStatus(t, f).Err, ErrSessionExpired)
	requireClosed(t, f)
	f.Publish(leadingStatus(2))
	f.Retract(leadingStatus(2))
	f.Finish(Status{Err: errors.New("late")})
	f.Withdraw()
	require.ErrorIs(t, f.Current().Err, ErrSessionExpired)
}

// TestStatusFeed_WithdrawRemovesUnreadStatus checks that the reader does not receive an unread status after
// Withdraw.
func TestStatusFeed_WithdrawRemovesUnreadStatus(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leadingStatus(1))
	f.Withdraw()
	requireClosed(t, f)
	require.Equal(t, Follower, f.Current().Role)
}

// TestStatusFeed_RetractRemovesUnreadStatus checks that after Retract the reader receives neither an unread
// status nor the status that was passed to Retract.
func TestStatusFeed_RetractRemovesUnreadStatus(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leadingStatus(1))
	f.Retract(Status{CandidateID: "x"})
	require.Empty(t, f.C())
	require.Equal(t, Status{CandidateID: "x"}, f.Current())
	f.Publish(Status{NowFollowing: "a"})
	require.Equal(t, "a", receiveStatus(t, f).NowFollowing)
}

// TestStatusFeed_AlwaysDeliversLossBetweenLeaderships publishes and receives statuses in random orders. A
// reader must not receive two leaderships without another status between them, and must receive the newest
// status last.
func TestStatusFeed_AlwaysDeliversLossBetweenLeaderships(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newStatusFeed()
		var held *Leadership
		var newest Status
		receive := func(s Status) {
			if s.Leadership != nil && held != nil {
				require.Same(t, held, s.Leadership, "seed %d: a new leadership without the loss of the old one", seed)
			}
			held, newest = s.Leadership, s
		}
		for range 30 {
			switch r.IntN(5) {
			case 0:
				f.Publish(leadingStatus(int64(seed)))
			case 1:
				f.Publish(Status{Role: Suspended})
			case 2:
				f.Publish(Status{NowFollowing: "x"})
			default:
				select {
				case s := <-f.C():
					receive(s)
				default:
				}
			}
		}
		f.Finish(Status{Err: ErrElectionOver})
		for s := range f.C() {
			receive(s)
		}
		require.ErrorIs(t, newest.Err, ErrElectionOver, "seed %d", seed)
	}
}

// TestStatusFeed_DeliversLossToConcurrentReader checks that a reader that receives while statuses are replaced
// does not receive two leaderships without another status between them.
func TestStatusFeed_DeliversLossToConcurrentReader(t *testing.T) {
	f := newStatusFeed()
	received := make(chan error, 1)
	go func() {
		var held *Leadership
		var err error
		for s := range f.C() {
			if held != nil && s.Leadership != nil && s.Leadership != held && err == nil {
				err = errors.New("two leaderships without a status between them")
			}
			held = s.Leadership
		}
		received <- err
	}()
	for range 100_000 {
		f.Publish(leadingStatus(1))
		f.Publish(Status{Role: Suspended})
	}
	f.Withdraw()
	require.NoError(t, <-received)
}

// receiveAll returns the events that wait in c.
func receiveAll(c <-chan event.Event) (events []event.Event) {
	for len(c) > 0 {
		events = append(events, <-c)
	}
	return events
}

// countMissed returns the number of dropped events that events report.
func countMissed(events []event.Event) (n int) {
	for _, e := range events {
		n += e.Missed
	}
	return n
}

// TestEventStream_DropsOldestEvents checks that only the oldest events are dropped, and that a dropped event is
// counted exactly once, even when the event that has counted it is dropped as well.
func TestEventStream_DropsOldestEvents(t *testing.T) {
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
		require.Equal(t, dropped, countMissed(events))
		s.Add(event.Event{Kind: event.Joined})
		require.Zero(t, countMissed(receiveAll(c)), "events are counted twice")
	}
}

// TestEventStream_DropsFrequentEventsFirst checks that any number of frequent events, such as checks, does not
// cause the loss of other events.
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

// TestEventStream_SuspendedAndResumedAlternate checks that the events of a leadership alternate between
// suspended and resumed, and that its loss is reported once.
func TestEventStream_SuspendedAndResumedAlternate(t *testing.T) {
	s := newEventStream(nil)
	c := s.C()
	failed := errors.New("failed")
	for _, e := range []event.Event{
		{Kind: event.Suspended},
		{Kind: event.Lost}, // there is no leadership, so this event is not delivered
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

// TestEventStream_CloseKeepsWaitingEvents checks that the reader receives the events that wait when Close is
// called, and no later events.
func TestEventStream_CloseKeepsWaitingEvents(t *testing.T) {
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

// TestEventStream_EndReportsLostOnce checks that End reports the loss of the leadership if no earlier event has
// reported the loss, and that a second call of End reports nothing.
func TestEventStream_EndReportsLostOnce(t *testing.T) {
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

// TestEventStream_ReportsTokenIfCreatedWhileLeading checks that the loss of a leadership has the right token
// although Events was first called after the election. The events before that call are not delivered.
func TestEventStream_ReportsTokenIfCreatedWhileLeading(t *testing.T) {
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

// TestEventStream_DeliversInOrderToConcurrentReader checks that a concurrent reader receives events in the
// right order, and that each event is either delivered or counted as dropped.
func TestEventStream_DeliversInOrderToConcurrentReader(t *testing.T) {
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

// TestEventStream_WithoutReaderUsesNoMemory checks that events use no memory when Events was not called.
func TestEventStream_WithoutReaderUsesNoMemory(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	c.SetID("a")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Report(event.Event{Kind: event.Checked})
		c.Join("a")
	}))
}
