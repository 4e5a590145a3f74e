package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// queue contains the candidates of a contestant for one election or lock. The head of the queue leads
// or holds the lock.
type queue struct {
	server     *server
	contestant contestant
	recipe     recipe
	dir        string

	sessions   int         // the number of sessions that were opened
	separate   int         // the number of sessions that have only one candidate
	shared     int         // the number of sessions that candidates share
	candidates int         // the number of candidates that have joined so far
	sessionOf  map[int]int // the session of each candidate in the queue
	head       int         // the candidate at the head; -1 without candidates
	watches    int         // the number of watches of all candidates when fillQueue has returned
}

// sharedSessions is the number of sessions among which the candidates are distributed.
const sharedSessions = 20

// newQueue opens the sessions for a queue of size candidates. The first separate candidates have
// sessions that they do not share.
func newQueue(s *server, c contestant, r recipe, size, separate int) (*queue, error) {
	dir, err := s.newDir()
	if err != nil {
		return nil, err
	}
	q := &queue{
		server: s, contestant: c, recipe: r, dir: dir,
		separate: separate, shared: min(size, sharedSessions), sessionOf: map[int]int{}, head: -1,
	}
	for range q.separate + q.shared {
		if err := q.connect(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *queue) connect() error {
	err := q.contestant.connect(q.sessions)
	q.sessions++
	return err
}

func (q *queue) join(session int) {
	q.sessionOf[q.candidates] = session
	q.contestant.join(q.recipe, q.candidates, session, q.dir)
	q.candidates++
}

// fillQueue adds candidates to an empty queue. The first ordered candidates join one after another, so
// that successive heads have different sessions. The others join in groups with one candidate for
// each shared session.
func (q *queue) fillQueue(ctx context.Context, size, ordered int) error {
	before, err := q.server.settledWatches(ctx)
	if err != nil {
		return err
	}
	for joined := 0; joined < ordered; joined++ {
		session := joined
		if joined >= q.separate {
			session = q.separate + joined%q.shared
		}
		q.join(session)
		if err := q.waitSize(ctx, joined+1); err != nil {
			return err
		}
	}
	if err := q.addCandidates(ctx, size-ordered); err != nil {
		return err
	}
	after, err := q.server.settledWatches(ctx)
	if err != nil {
		return err
	}
	q.watches = after - before
	first, err := waitAcquisition(ctx, q.contestant)
	q.head = first.candidate
	return err
}

// addCandidates adds n candidates in groups with one candidate for each shared session.
func (q *queue) addCandidates(ctx context.Context, n int) error {
	for joined := 0; joined < n; {
		for range min(q.shared, n-joined) {
			q.join(q.separate + joined%q.shared)
			joined++
		}
		if err := q.waitSize(ctx, len(q.sessionOf)); err != nil {
			return err
		}
	}
	return nil
}

// waitSize waits until the queue has n candidates.
func (q *queue) waitSize(ctx context.Context, n int) error {
	if err := q.server.waitChildren(ctx, q.dir, n); err != nil {
		return fmt.Errorf("%w%s", err, failureText(q.contestant))
	}
	return nil
}

// failureText returns a text about the failure of a candidate, or "" if no candidate has failed.
func failureText(c contestant) string {
	select {
	case err := <-c.failures():
		return fmt.Sprintf(" (a candidate has failed: %v)", err)
	default:
		return ""
	}
}

// waitAcquisition waits until a candidate of c becomes the leader or acquires a lock.
func waitAcquisition(ctx context.Context, c contestant) (acquisition, error) {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case a := <-c.acquisitions():
		return a, nil
	case <-limit.C:
		return acquisition{}, fmt.Errorf("no candidate has become the head of the queue%s", failureText(c))
	case <-ctx.Done():
		return acquisition{}, ctx.Err()
	}
}

// departure contains the time just before the head of the queue left, or just before its session was closed.
type departure struct {
	at  int64
	err error
}

// removeHead makes the head of the queue leave, or closes its session, without waiting. The returned channel receives
// the time.
func (q *queue) removeHead(disconnect bool) <-chan departure {
	departed := make(chan departure, 1)
	head, session := q.head, q.sessionOf[q.head]
	delete(q.sessionOf, head)
	go func() {
		var d departure
		if disconnect {
			d.at, d.err = q.contestant.disconnect(session)
		} else {
			d.at, d.err = q.contestant.leave(head)
		}
		departed <- d
	}()
	return departed
}

// replaceHead lets the head leave, or closes its session, and returns the time until its successor
// has learned that it is the head. Afterwards a new candidate joins.
func (q *queue) replaceHead(ctx context.Context, disconnect bool) (time.Duration, error) {
	size, session := len(q.sessionOf), q.sessionOf[q.head]
	departed := q.removeHead(disconnect)
	next, err := waitAcquisition(ctx, q.contestant)
	d := <-departed
	switch {
	case err != nil:
		return 0, err
	case d.err != nil:
		return 0, d.err
	}
	q.head = next.candidate
	if disconnect {
		session = q.sessions
		if err := q.connect(); err != nil {
			return 0, err
		}
	}
	q.join(session)
	return time.Duration(next.at - d.at), q.waitSize(ctx, size)
}

// replaceHeads lets n heads leave one after the other, each as soon as it is the head, and returns the time until
// the last successor has learned that it is the head. If rejoin is set, a new candidate joins for each that has
// left.
func (q *queue) replaceHeads(ctx context.Context, n int, rejoin bool) (time.Duration, error) {
	size, session := len(q.sessionOf), q.sessionOf[q.head]
	if err := q.contestant.leaveNext(n - 1); err != nil {
		return 0, err
	}
	departed := q.removeHead(false)
	var heads []acquisition
	for len(heads) < n {
		a, err := waitAcquisition(ctx, q.contestant)
		if err != nil {
			return 0, fmt.Errorf("after %d of %d successions: %w", len(heads), n, err)
		}
		heads = append(heads, a)
		if rejoin {
			q.join(session)
		} else {
			size--
		}
		session = q.sessionOf[a.candidate]
	}
	d := <-departed
	if d.err != nil {
		return 0, d.err
	}
	// Sort by time, because a candidate may report its acquisition later than its successor.
	slices.SortFunc(heads, func(a, b acquisition) int { return cmp.Compare(a.at, b.at) })
	for _, a := range heads[:n-1] {
		delete(q.sessionOf, a.candidate)
	}
	last := heads[n-1]
	q.head = last.candidate
	return time.Duration(last.at - d.at), q.waitSize(ctx, size)
}

// removeLast lets the only candidate that remains leave the queue.
func (q *queue) removeLast(ctx context.Context) error {
	d := <-q.removeHead(false)
	q.head = -1
	if d.err != nil {
		return d.err
	}
	return q.waitSize(ctx, 0)
}
