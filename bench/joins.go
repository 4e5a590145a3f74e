package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// measureJoins measures the time until a candidate that joins an election without other candidates becomes the
// leader. If construct is true, the time includes the construction of the candidate.
func (b *bench) measureJoins(ctx context.Context, r *row, construct bool) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.contestants {
		dir, err := b.server.newDir()
		if err != nil {
			return err
		}
		if err := connectSessions(c, 1); err != nil {
			return err
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			took, err := c.timeJoin(0, dir, construct)
			if err != nil {
				return 0, err
			}
			return took, b.server.waitChildren(ctx, dir, 0)
		}))
	}
	// Run many warm-up rounds, so that Java compiles the code before the rounds that this measurement includes.
	if err := b.interleaveTurns(ctx, []*row{r}, b.warmJoins, 0, time.Millisecond, turns); err != nil {
		return err
	}
	return b.interleaveTurns(ctx, []*row{r}, 0, b.rounds, b.pause, turns)
}

// measureSecondJoins measures a candidate that joins an election with a leader, until it has joined: it knows its
// position and watches its predecessor. Contestants that do not report that are absent.
func (b *bench) measureSecondJoins(ctx context.Context, r *row) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.contestants {
		switch _, err := c.queued(); {
		case errors.Is(err, errors.ErrUnsupported):
			r.Missing[c.name()] = "does not report when it has joined"
			continue
		case err != nil:
			return err
		}
		q, err := newQueue(b.server, c, election, 2, 0)
		if err != nil {
			return err
		}
		if err := q.fillQueue(ctx, 1, 1); err != nil {
			return err
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			took, err := q.timeSecondJoin(ctx)
			if err == nil {
				_, err = q.replaceHeads(ctx, 1, false)
			}
			return took, err
		}))
	}
	return b.interleaveTurns(ctx, []*row{r}, b.warmJoins, b.rounds, b.pause, turns)
}

// timeSecondJoin lets a candidate join behind the leader, and returns the time until it has joined.
func (q *queue) timeSecondJoin(ctx context.Context) (time.Duration, error) {
	before, err := q.contestant.queued()
	if err != nil {
		return 0, err
	}
	session := q.candidates % q.shared
	if err := q.contestant.prepare(q.candidates, session, q.dir); err != nil {
		return 0, err
	}
	at := now()
	q.join(session)
	err = poll(ctx, "waiting for the second candidate", time.Minute, 100*time.Microsecond, func() (bool, error) {
		count, err := q.contestant.queued()
		return count > before, err
	})
	took := time.Duration(now() - at)
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, failureText(q.contestant))
	}
	return took, nil
}

// measureElections measures the time until candidates of one session lead n elections that have no other
// candidates.
func (b *bench) measureElections(ctx context.Context, r *row, n, rounds int) error {
	var turns []contestantTurn
	for _, c := range b.contestants {
		dir, err := b.server.newDirWith(n, nil)
		if err != nil {
			return err
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			if err := c.connect(0); err != nil {
				return 0, err
			}
			took, err := leadAll(ctx, c, dir, n)
			return took, errors.Join(err, c.reset())
		}))
	}
	return b.interleaveTurns(ctx, []*row{r}, 1, rounds, b.longPause, turns)
}

// leadAll lets candidates of session 0 lead the elections at n children of dir. At most concurrentJoins candidates
// join at the same time, because in kazoo each candidate occupies a thread until it leads.
func leadAll(ctx context.Context, c contestant, dir string, n int) (time.Duration, error) {
	const concurrentJoins = 100
	at, last := now(), int64(0)
	for joined, led := 0, 0; led < n; led++ {
		for ; joined < min(n, led+concurrentJoins); joined++ {
			c.join(election, joined, 0, childPath(dir, joined))
		}
		a, err := waitAcquisition(ctx, c)
		if err != nil {
			return 0, fmt.Errorf("after %d of %d elections: %w", led, n, err)
		}
		last = max(last, a.at)
	}
	return time.Duration(last - at), nil
}

// measureMassJoins measures how long n candidates that join an election at the same time, or n contenders for a
// mutex, need until all have joined: they know their positions and watch their predecessors. The time includes the
// construction of contenders, and that of candidates if construct is set.
func (b *bench) measureMassJoins(ctx context.Context, r *row, kind recipe, n, rounds int, construct bool) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.eligibleContestants([]*row{r}, b.contestants, n) {
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			took, err := b.joinAll(ctx, c, kind, n, construct)
			return took, errors.Join(err, c.reset())
		}))
	}
	return b.interleaveTurns(ctx, []*row{r}, 1, rounds, b.longPause, turns)
}

// joinPatience limits the time in which many candidates join at the same time.
const joinPatience = 30 * time.Minute

func (b *bench) joinAll(ctx context.Context, c contestant, kind recipe, n int, construct bool) (time.Duration, error) {
	dir, err := b.server.newDir()
	if err != nil {
		return 0, err
	}
	if err := connectSessions(c, sharedSessions); err != nil {
		return 0, err
	}
	return b.joinCandidates(ctx, c, dir, kind, n, construct)
}

// joinCandidates lets n candidates join the election at dir at the same time, or n contenders the mutex at dir. Their
// sessions must be connected. It returns the time until all of them have joined.
func (b *bench) joinCandidates(ctx context.Context, c contestant, dir string, kind recipe, n int, construct bool) (time.Duration, error) {
	before, err := b.server.settledWatches(ctx)
	if err != nil {
		return 0, err
	}
	if !construct && kind == election {
		for candidate := range n {
			if err := c.prepare(candidate, candidate%sharedSessions, dir); err != nil {
				return 0, err
			}
		}
	}
	at := now()
	for candidate := range n {
		c.join(kind, candidate, candidate%sharedSessions, dir)
	}
	if _, err := c.queued(); kind == mutex || errors.Is(err, errors.ErrUnsupported) {
		// Only the number of watches on the server shows that these candidates have joined.
		err := b.server.waitWatches(ctx, before+n-1)
		return time.Duration(now() - at), err
	}
	err = poll(ctx, "waiting for candidates", joinPatience, time.Millisecond, func() (bool, error) {
		count, err := c.queued()
		return count == n, err
	})
	took := time.Duration(now() - at)
	select {
	case failure := <-c.failures():
		err = errors.Join(err, fmt.Errorf("a candidate has failed: %w", failure))
	default:
	}
	return took, err
}
