package main

import (
	"context"
	"fmt"
	"time"
)

// queue is a line of a contestant's candidates of whom the first leads. It
// stays as long as it was built: whoever goes is replaced at the end.
type queue struct {
	control *control
	who     contestant
	dir     string
	size    int

	sessionOf   map[int]int // by candidate
	sessions    int
	candidates  int
	leader      int
	ownSessions bool
	watches     int // held by all candidates after building
}

// sharedSessions is over how many sessions a long line is spread.
const sharedSessions = 20

// buildQueue has size candidates stand in line. As many of them as there will
// be turns stand in the order of their numbers, so that a leader and its
// successor are never of one session; with ownSessions none of those shares its
// session with anybody. The rest come all at once.
func buildQueue(ctx context.Context, control *control, who contestant, size, turns int, ownSessions bool) (*queue, error) {
	dir, err := control.newDir()
	if err != nil {
		return nil, err
	}
	q := &queue{
		control: control, who: who, dir: dir, size: size,
		sessionOf: map[int]int{}, ownSessions: ownSessions,
	}
	shared := min(size, sharedSessions)
	ordered := min(size, turns+2)
	own := 0
	if ownSessions {
		own = ordered
	}
	for range own + shared {
		if err := q.connect(); err != nil {
			return nil, err
		}
	}
	before, err := control.settledWatches(ctx)
	if err != nil {
		return nil, err
	}
	for i := range size {
		session := own + i%shared
		if i < own {
			session = i
		}
		q.stand(session)
		if i < ordered {
			if err := q.inLine(ctx, i+1); err != nil {
				return nil, err
			}
		}
	}
	if err := q.inLine(ctx, size); err != nil {
		return nil, err
	}
	after, err := control.settledWatches(ctx)
	if err != nil {
		return nil, err
	}
	q.watches = after - before
	first, err := q.waitLeader(ctx)
	q.leader = first.candidate
	return q, err
}

func (q *queue) connect() error {
	err := q.who.connect(q.sessions)
	q.sessions++
	return err
}

func (q *queue) stand(session int) {
	q.sessionOf[q.candidates] = session
	q.who.stand(q.candidates, session, q.dir)
	q.candidates++
}

// inLine waits until n candidates stand in line.
func (q *queue) inLine(ctx context.Context, n int) error {
	if err := q.control.waitCount(ctx, q.dir, n); err != nil {
		return fmt.Errorf("%w%s", err, q.complaint())
	}
	return nil
}

// complaint is what a candidate has failed with, if any has.
func (q *queue) complaint() string {
	select {
	case err := <-q.who.failed():
		return fmt.Sprintf(" (a candidate has failed: %v)", err)
	default:
		return ""
	}
}

func (q *queue) waitLeader(ctx context.Context) (leading, error) {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case l := <-q.who.leads():
		return l, nil
	case <-limit.C:
		return leading{}, fmt.Errorf("nobody leads%s", q.complaint())
	case <-ctx.Done():
		return leading{}, ctx.Err()
	}
}

// turn makes the leader go, by leaving the line or by the end of its session,
// and returns how long it took until the next one knew that it leads. Then
// somebody joins anew.
func (q *queue) turn(ctx context.Context, end bool) (time.Duration, error) {
	type departure struct {
		at  int64
		err error
	}
	gone := q.leader
	session := q.sessionOf[gone]
	delete(q.sessionOf, gone)
	departed := make(chan departure, 1)
	go func() {
		var d departure
		if end {
			d.at, d.err = q.who.disconnect(session)
		} else {
			d.at, d.err = q.who.leave(gone)
		}
		departed <- d
	}()
	next, err := q.waitLeader(ctx)
	d := <-departed
	switch {
	case err != nil:
		return 0, err
	case d.err != nil:
		return 0, d.err
	}
	q.leader = next.candidate
	if end {
		session = q.sessions
		if err := q.connect(); err != nil {
			return 0, err
		}
	}
	q.stand(session)
	return time.Duration(next.at - d.at), q.inLine(ctx, q.size)
}
