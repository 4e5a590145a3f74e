package leaderelection

import "sync"

// statusFeed implements the channel of [Candidate.Status]: it never blocks on the reader,
// replaces statuses that the reader has missed, and still delivers the loss of every
// leadership that the reader has received. Its methods may be called from any goroutine.
type statusFeed struct {
	mu      sync.Mutex
	c       chan Status
	sent    [2]*Leadership // of what was put into c last and may have been read since
	unread  int            // how many of sent count
	told    *Leadership
	current Status
	closed  bool
}

// newStatusFeed returns a statusFeed that has not published a status yet.
func newStatusFeed() *statusFeed {
	// Two elements: the end of a leadership, and what has come after it.
	return &statusFeed{c: make(chan Status, 2)}
}

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
		f.takeBack()
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
	f.takeBack()
	f.current = Status{CandidateID: f.current.CandidateID}
	f.close()
}

func (f *statusFeed) publish(s Status) {
	if f.closed {
		return
	}
	f.current = s
	missed := f.takeBack()
	var next []Status
	if s.Leadership != nil && f.told != nil && s.Leadership != f.told {
		// The reader holds an earlier leadership: it hears of the end first.
		end := Status{CandidateID: s.CandidateID, Role: Suspended}
		for _, m := range missed {
			if m.Leadership == nil {
				end = m
			}
		}
		next = append(next, end)
	}
	for i, s := range append(next, s) {
		f.sent[i], f.unread = s.Leadership, i+1
		f.c <- s // there is room: it was emptied, and nobody else sends
	}
}

// takeBack empties the channel, notes what the reader has read of it, and
// returns the rest.
func (f *statusFeed) takeBack() (missed []Status) {
	for {
		select {
		case s := <-f.c:
			missed = append(missed, s)
			continue
		default:
		}
		break
	}
	if read := f.unread - len(missed); read > 0 {
		f.told = f.sent[read-1]
	}
	f.sent, f.unread = [2]*Leadership{}, 0
	return missed
}

func (f *statusFeed) close() {
	if !f.closed {
		f.closed = true
		close(f.c)
	}
}
