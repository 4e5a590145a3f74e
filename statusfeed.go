package leaderelection

import "sync"

// statusFeed implements the channel of [Candidate.Status]: it never blocks on the reader,
// replaces statuses that the reader has missed, and still delivers the loss of every
// leadership that the reader has received. Its methods may be called from any goroutine.
type statusFeed struct {
	mu sync.Mutex
	c  chan Status // of capacity 1
	// pending reports that a status was sent to c of which it is unknown whether the reader has
	// received it. sent is the leadership of that status.
	pending bool
	sent    *Leadership
	// next sends the following status, or is nil.
	next *delayedStatus
	// held is the leadership of the last status that the reader is known to have received.
	held    *Leadership
	current Status
	closed  bool
}

// delayedStatus is a status that a goroutine sends after the reader has received the status before
// it. If both statuses were in the channel, they could not be removed together while the reader
// receives.
type delayedStatus struct {
	status Status
	stop   chan struct{} // closed if the status is removed
	sent   chan bool     // of capacity 1; receives whether the status was sent
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
// it. It is for the moment between the loss of a leadership and the next status.
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
	// The reader holds an earlier leadership, and receives its loss first.
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

// send sends s to the channel, which is empty. No other goroutine sends.
func (f *statusFeed) send(s Status) {
	f.pending, f.sent = true, s.Leadership
	f.c <- s
}

// removeUnread empties the channel, updates held, and returns the statuses that the reader has not
// received.
func (f *statusFeed) removeUnread() (missed []Status) {
	if f.next != nil {
		close(f.next.stop)
		if <-f.next.sent { // then the status before it was received
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
