package leaderelection

import (
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
)

// statusFeed implements the channel of [Candidate.Status]: it never blocks on the reader,
// replaces statuses that the reader has missed, and still delivers the loss of every
// leadership that the reader has received. Its methods may be called from any goroutine.
type statusFeed struct {
	mu sync.Mutex
	c  chan Status // contains the newest status that was not received; capacity 1
	// pending is set while a status was sent to c and the feed does not know whether the reader has received
	// it. sent is the leadership of this status.
	pending bool
	sent    *Leadership
	// next is the status that is sent after the one in c, or nil.
	next *delayedStatus
	// held is the leadership of the last status that the reader has certainly received.
	held    *Leadership
	current Status
	closed  bool
}

// delayedStatus is a status that a goroutine sends when the reader has received the status before it. The channel
// never contains both statuses, because the reader could receive one of them while the feed removes them.
type delayedStatus struct {
	status Status
	stop   chan struct{} // closed to remove the status before it is sent
	sent   chan bool     // capacity 1; receives whether the status was sent
}

// newStatusFeed returns a statusFeed that has not published a status yet.
func newStatusFeed() *statusFeed { return &statusFeed{c: make(chan Status, 1)} }

// C returns the channel for Candidate.Status.
func (f *statusFeed) C() <-chan Status { return f.c }

// Current returns the status that was published last.
func (f *statusFeed) Current() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// Publish delivers s to the reader. It does not block, and does nothing after Finish or
// Withdraw.
func (f *statusFeed) Publish(s Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(s)
}

// Retract discards all unread statuses, and makes s the current status without delivering
// s. Callers use it between the loss of a leadership and the next status.
func (f *statusFeed) Retract(s Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.removeUnread()
		f.current = s
	}
}

// Finish publishes the final status and closes the channel.
func (f *statusFeed) Finish(s Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(s)
	f.close()
}

// Withdraw discards all unread statuses and closes the channel.
func (f *statusFeed) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.removeUnread()
	f.current = Status{CandidateID: f.current.CandidateID}
	f.close()
}

func (f *statusFeed) publish(s Status) {
	if f.closed {
		return
	}
	f.current = s
	missed := f.removeUnread()
	if s.Leadership == nil || f.held == nil || s.Leadership == f.held {
		f.send(s)
		return
	}
	// The reader holds an earlier leadership, and must receive its loss first.
	loss := Status{CandidateID: s.CandidateID, Role: Suspended}
	for _, m := range missed {
		if m.Leadership == nil {
			loss = m
		}
	}
	f.send(loss)
	next := &delayedStatus{s, make(chan struct{}), make(chan bool, 1)}
	f.next = next
	go func() {
		select {
		case f.c <- next.status:
			next.sent <- true
		case <-next.stop:
			next.sent <- false
		}
	}()
}

// send sends s to the channel, which must be empty. Only one goroutine sends at a time.
func (f *statusFeed) send(s Status) {
	f.pending, f.sent = true, s.Leadership
	f.c <- s
}

// removeUnread empties the channel, updates held, and returns the statuses that the reader has not
// received.
func (f *statusFeed) removeUnread() (missed []Status) {
	if f.next != nil {
		close(f.next.stop)
		if <-f.next.sent { // if the delayed status was received, the status before it was received as well
			f.held, f.sent = f.sent, f.next.status.Leadership
		} else {
			missed = append(missed, f.next.status)
		}
		f.next = nil
	}
	select {
	case s := <-f.c:
		missed = append([]Status{s}, missed...)
	default:
		if f.pending {
			f.held = f.sent
		}
	}
	f.pending, f.sent = false, nil
	return missed
}

func (f *statusFeed) close() {
	if !f.closed {
		f.closed = true
		close(f.c)
	}
}

const (
	// maxEvents is the number of events that wait for the reader.
	maxEvents = 64
	// maxFrequent is the number of waiting events at which send begins to drop frequent events.
	maxFrequent = maxEvents / 2
)

// eventStream implements [Candidate.Events]. It never blocks on the reader. Its methods may be called from any
// goroutine. On a nil *eventStream, the methods without results do nothing.
type eventStream struct {
	c chan event.Event

	mu      sync.Mutex
	missed  int       // number of dropped events that no delivered event has reported in its Missed yet
	token   int64     // token of the newest leadership
	term    term      // the state of the newest leadership according to the events
	vacated time.Time // when the last predecessor left; zero if that is not known
	closed  bool
}

// term is the state of a leadership according to the events that were added.
type term uint8

const (
	noTerm term = iota // the candidate was not elected, or the leadership is lost
	leadingTerm
	suspendedTerm
)

// newEventStream returns a stream of the events from now on. current is the current leadership, or nil.
func newEventStream(current *Leadership) *eventStream {
	s := &eventStream{c: make(chan event.Event, maxEvents)}
	if current != nil {
		s.token, s.term = current.Token(), leadingTerm
	}
	return s
}

// C returns the channel on which the reader receives events.
func (s *eventStream) C() <-chan event.Event { return s.c }

// SetVacated sets the time at which the last predecessor left, or the zero time if the time is unknown.
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

// send sends e. If too many events wait, it drops the oldest one, or e itself.
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
		// Drop the oldest event. The other events must stay in the channel: if they were removed and sent
		// again, a concurrent reader could receive them in the wrong order.
		select {
		case oldest := <-s.c:
			e.Missed += oldest.Missed + 1
		default:
		}
	}
}

// updateTerm updates the state of the leadership by e, and sets the Token and the Kind of e. It returns
// false if e contradicts the state.
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

// End delivers event.Ended and closes the channel. If the loss of a leadership was not reported, End delivers
// event.Lost first.
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

// isFrequent reports whether candidates report events of kind k again and again, so that a reader needs
// only their number.
func isFrequent(k event.Kind) bool {
	return k == event.Checked || k == event.Watched || k == event.Heartbeat
}
