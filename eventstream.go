package leaderelection

import (
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
)

const (
	// maxEvents is the number of events that wait for the reader.
	maxEvents = 64
	// maxFrequent is the number of waiting events from which on frequent events are dropped.
	maxFrequent = maxEvents / 2
)

// eventStream implements [Candidate.Events]. It never blocks on the reader. Its methods may be
// called from any goroutine; those that return nothing do nothing if it is nil.
type eventStream struct {
	c chan event.Event

	mu      sync.Mutex
	missed  int       // number of dropped events that were not reported yet
	token   int64     // token of the newest leadership
	term    term      // progress of the newest leadership
	vacated time.Time // when the last predecessor left; zero if that is unknown
	closed  bool
}

// term is the progress of a leadership, as it was reported.
type term uint8

const (
	noTerm term = iota // not elected, or lost
	leadingTerm
	suspendedTerm
)

// newEventStream returns a stream of later events. current is the current leadership, or nil.
func newEventStream(current *Leadership) *eventStream {
	s := &eventStream{c: make(chan event.Event, maxEvents)}
	if current != nil {
		s.token, s.term = current.Token(), leadingTerm
	}
	return s
}

// C returns the channel.
func (s *eventStream) C() <-chan event.Event { return s.c }

// SetVacated sets when the last predecessor left, or the zero time if that is unknown.
func (s *eventStream) SetVacated(t time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacated = t
}

// Add delivers e to the reader, unless e contradicts the events before it or Close was called.
// event.Elected is followed by event.HandOver if it is known when the predecessor left.
func (s *eventStream) Add(e event.Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.updateTerm(&e) {
		return
	}
	e.Time = time.Now()
	s.send(e)
	if e.Kind == event.Elected && !s.vacated.IsZero() {
		s.send(event.Event{Kind: event.HandOver, Time: e.Time, ID: e.ID, Token: e.Token, Duration: e.Time.Sub(s.vacated)})
		s.vacated = time.Time{}
	}
}

// send sends e, and drops the oldest event, or e itself, if too many wait.
func (s *eventStream) send(e event.Event) {
	if isFrequent(e.Kind) && len(s.c) >= maxFrequent {
		s.missed++
		return
	}
	e.Missed, s.missed = s.missed, 0
	for {
		select {
		case s.c <- e:
			return
		default:
		}
		// Drop the oldest event. The others must stay in the channel: if they were removed
		// and sent again, a concurrent reader could receive them in the wrong order.
		select {
		case oldest := <-s.c:
			e.Missed += oldest.Missed + 1
		default:
		}
	}
}

// updateTerm records the progress of the leadership, and completes e. It returns false if e contradicts
// the progress.
func (s *eventStream) updateTerm(e *event.Event) bool {
	switch e.Kind {
	case event.Joined:
		s.vacated = time.Time{}
	case event.Elected:
		switch {
		case s.term == leadingTerm:
			return false
		case s.term == suspendedTerm && s.token == e.Token:
			e.Kind = event.Resumed
		}
		s.term, s.token = leadingTerm, e.Token
	case event.Suspended:
		if s.term != leadingTerm {
			return false
		}
		s.term, e.Token = suspendedTerm, s.token
	case event.Lost:
		if s.term == noTerm {
			return false
		}
		s.term, e.Token = noTerm, s.token
	}
	return true
}

// End delivers event.Ended, after event.Lost if a leadership was not reported as lost, and closes
// the channel.
func (s *eventStream) End(id string, reason error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := time.Now()
	lost := event.Event{Kind: event.Lost, Time: now, ID: id, Err: reason}
	if s.updateTerm(&lost) {
		s.send(lost)
	}
	s.send(event.Event{Kind: event.Ended, Time: now, ID: id, Err: reason})
	s.closed = true
	close(s.c)
}

// Close closes the channel. The reader still receives the events that wait.
func (s *eventStream) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}

// isFrequent reports whether events of a kind may be numerous. Only their number matters.
func isFrequent(k event.Kind) bool {
	return k == event.Checked || k == event.Watched || k == event.Heartbeat
}
