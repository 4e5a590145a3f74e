package resign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Prefer makes the candidate with the highest priority lead. Each program calls it while its candidate takes part in
// the election, and cancels ctx afterwards:
//
//	q := resign.NewQueue(conn, "/jobs/report")
//	go q.Prefer(ctx, candidate, priorityOf, time.Minute)
//
// priority returns the priority of a candidate, a greater number for one that should lead, for instance from its
// Value. It must return the same in all programs. If the leader has a lower priority than candidate, and no other
// waiting candidate has a higher one, Prefer requests the leadership for candidate by [Queue.Transfer]. It does so when
// it has observed the same leadership for the given period, so a candidate that fails again and again takes the
// leadership at most once in this time. The programs should use Elector of package elector, whose candidates join
// again after a request.
//
// A candidate whose predecessors do not listen to requests waits for its turn. Prefer reads the candidates four
// times in each period. It continues if the backend does not answer or the election does not exist, and returns
// other errors of q.Candidates and q.Request, such as leaderelection.ErrPermission. When ctx is done it returns the
// cause. The error wraps leaderelection.ErrInvalid if the period is not positive or an argument is nil.
func (q Queue) Prefer(ctx context.Context, candidate interface{ ID() string }, priority func(leaderelection.CandidateInfo) int, period time.Duration) error {
	if candidate == nil || priority == nil || period <= 0 {
		return fmt.Errorf("%w: Prefer: candidate and priority must not be nil, and the period must be positive: %v", leaderelection.ErrInvalid, period)
	}
	leader, since := leaderelection.CandidateInfo{}, time.Time{}
	for {
		candidates, err := q.Candidates(ctx)
		if err == nil && len(candidates) > 0 {
			if !isSameLeadership(candidates[0], leader) {
				leader, since = candidates[0], time.Now()
			}
			if id := candidate.ID(); preferredCandidate(candidates, priority) == id && time.Since(since) >= period {
				attempt, cancel := context.WithTimeout(ctx, period)
				err = q.transferFrom(attempt, leader, id)
				cancel()
			}
		}
		if err != nil && !isTemporary(err) {
			return err
		}
		if err := limit.Pause(ctx, period/4); err != nil {
			return err
		}
	}
}

// isTemporary reports whether the reason for err may pass without a change of the
// program, so that Prefer tries again.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]error{
		leaderelection.ErrUnreachable, leaderelection.ErrNoElection, leaderelection.ErrNotTransferred,
		context.DeadlineExceeded, context.Canceled,
	}, func(e error) bool { return errors.Is(err, e) })
}

// preferredCandidate returns the ID of the candidate that should replace the leader: the first one with the highest
// priority, if that is higher than the priority of the leader. It returns "" if the leader should remain.
func preferredCandidate(candidates []leaderelection.CandidateInfo, priority func(leaderelection.CandidateInfo) int) string {
	best := slices.MaxFunc(candidates, func(a, b leaderelection.CandidateInfo) int {
		return cmp.Compare(priority(a), priority(b))
	})
	if best.ID == candidates[0].ID {
		return ""
	}
	return best.ID
}
