package main

import "time"

// contestant is a way of electing a leader. Sessions and candidates go by
// numbers that the harness gives. Methods are called by one goroutine at a
// time but for leave and disconnect, during which others may be called.
type contestant interface {
	name() string
	// most is how many candidates it can have at a time.
	most() int
	// connect opens a session and returns when it is usable.
	connect(session int) error
	// disconnect closes a session. at is the time just before.
	disconnect(session int) (at int64, err error)
	// join has one candidate lead the empty line at dir, and leave it, and
	// returns the time from the start of the candidacy to leadership. whole
	// includes the making of the candidate, where that is a step of its own.
	join(session int, dir string, whole bool) (time.Duration, error)
	// stand has a candidate enter the line at dir and returns without waiting.
	stand(candidate, session int, dir string)
	// leave has a candidate who leads give that up. at is the time just before.
	leave(candidate int) (at int64, err error)
	// leads tells when candidates come to lead.
	leads() <-chan leading
	// failed tells of candidates that have failed, but for those whose session
	// was closed.
	failed() <-chan error
	// reset closes all sessions and forgets the candidates.
	reset() error
	// close is reset and the end of the contestant.
	close() error
}

// leading says when a candidate learned that it leads.
type leading struct {
	candidate int
	at        int64
}

// preparer is a contestant whose candidates are made, by requests, before they
// stand in line.
type preparer interface {
	// prepare makes candidates 0 to n-1, each on session i%sessions.
	prepare(n, sessions int, dir string) error
}

// enlister is a contestant that knows how many of its candidates have found
// their place in line. Of others the server tells, by the watches it holds.
type enlister interface {
	enlisted() int
}

// absent is a contestant that does not take part.
type absent struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// sessionTimeout is the same for all: long enough for a busy machine.
const sessionTimeout = 10 * time.Second

// standers is what contestants have in common.
type standers struct {
	leading chan leading
	failure chan error
}

func newStanders() standers {
	// Nobody waits for a harness that does not read.
	return standers{leading: make(chan leading, 1<<14), failure: make(chan error, 1)}
}

func (s *standers) leads() <-chan leading { return s.leading }
func (s *standers) failed() <-chan error  { return s.failure }

func (s *standers) tellLeads(candidate int) { s.leading <- leading{candidate, now()} }

// tellFailed keeps the first failure.
func (s *standers) tellFailed(err error) {
	select {
	case s.failure <- err:
	default:
	}
}

// forget drops what was told of earlier candidates.
func (s *standers) forget() {
	for {
		select {
		case <-s.leading:
		case <-s.failure:
		default:
			return
		}
	}
}
