package main

import (
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// recipe is what a queue of znodes is used for: the session whose znode is the first is the leader of an election, or
// holds a lock.
type recipe string

const (
	election recipe = "election"
	mutex    recipe = "mutex"
)

// contestant is an implementation of elections, locks and possibly other recipes. Sessions and
// candidates have numbers, which the benchmark assigns. Candidates are participants of an election
// or of a lock. Methods are called by one goroutine at a time, except leave and disconnect. A method
// returns [errors.ErrUnsupported] if the implementation lacks the recipe.
type contestant interface {
	name() string
	// maxCandidates returns the maximum number of candidates at a time.
	maxCandidates() int
	// processID returns the ID of the process in which the client runs.
	processID() int

	// connect opens a session and returns when the session is usable.
	connect(session int) error
	// disconnect closes a session. It returns the time just before the request to close.
	disconnect(session int) (at int64, err error)
	// reset closes all sessions and removes the candidates.
	reset() error
	// close calls reset and releases all resources.
	close() error

	// timeJoin lets one candidate join the election at dir, which has no candidates, and leave
	// afterwards. It returns the time until the candidate became the leader. The time includes
	// the construction of the candidate if construct is set.
	timeJoin(session int, dir string, construct bool) (time.Duration, error)
	// prepare constructs a candidate, if the contestant constructs candidates separately before they join.
	prepare(candidate, session int, dir string) error
	// join starts a candidate, which joins the queue at dir, and returns without waiting until the candidate has
	// joined.
	join(r recipe, candidate, session int, dir string)
	// leave resigns the leadership, or releases the lock, of the candidate at the head of the queue. It
	// returns the time just before the resignation or release.
	leave(candidate int) (at int64, err error)
	// leaveNext makes the next n candidates leave as soon as they become the head of the queue.
	leaveNext(n int) error
	// queued returns the number of candidates that have joined: they know their position and watch their predecessor.
	queued() (int, error)
	// acquisitions returns a channel that reports each candidate that has become the leader, or
	// has acquired the lock.
	acquisitions() <-chan acquisition
	// failures returns a channel that reports an error when a candidate fails although its session is open.
	failures() <-chan error

	// contend acquires and releases locks repeatedly, as l describes, and returns the result. The locks are children
	// of dir, whose paths childPath returns.
	contend(l lockingPattern, dir string) (contention, error)
	// repeat repeats an operation on an object at dir in each of the sessions 0 to n-1, during the period p.
	repeat(o operation, n int, dir string, p benchmark.Period) (completions, error)

	// fillCache creates a cache of dir and its n children, waits until all znodes are in memory, and closes the
	// cache. It returns the time from the construction of the cache until all znodes are in memory.
	fillCache(session int, dir string, n int) (time.Duration, error)
	// watchCache fills a cache of dir. The cache remains open until reset is called.
	watchCache(session int, dir string) error
	// writeCached writes the child of dir with the name cachedName. It returns the time from just
	// before the write until the cache of watchCache has reported the change.
	writeCached(session int, dir string) (time.Duration, error)
}

// acquisition reports the time at which a candidate learned that it leads or holds the lock.
type acquisition struct {
	candidate int
	at        int64
}

// absentContestant is an implementation that cannot be measured, with the reason.
type absentContestant struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// sessionTimeout is the session timeout of all contestants. It is so long that no session expires on a busy machine.
const sessionTimeout = 10 * time.Second

// events contains the channels by which a contestant reports acquisitions and failures.
type events struct {
	acquired chan acquisition
	failed   chan error
}

func newEvents() *events {
	// The channels are large, so that no candidate has to wait for the benchmark to receive.
	return &events{acquired: make(chan acquisition, 1<<14), failed: make(chan error, 1)}
}

// reportFailure reports a failure, unless an earlier failure was not received yet.
func (e *events) reportFailure(err error) {
	select {
	case e.failed <- err:
	default:
	}
}

// discardUnread removes all unread reports, which come from candidates of earlier measurements.
func (e *events) discardUnread() {
	for {
		select {
		case <-e.acquired:
		case <-e.failed:
		default:
			return
		}
	}
}
