package changefeed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/resign"
)

// NewQueue returns the queue of a candidate for [resign.Queue.Prefer], which lets the candidate take over
// from a leader of lower priority. NewQueue sends no requests.
//
//	go changefeed.NewQueue(election).Prefer(ctx, election, priorityOf, time.Minute)
//
// The record does not contain the candidates that wait. So the queue consists of the leader and, if it can
// take over, this candidate: its feed works, the store acknowledges its writes, and no [Transfer] is in
// progress. Candidates are known by their IDs only, without a value. If several wait with a higher priority
// than the leader's, any of them takes over first, and after each period one with a still higher priority.
//
// Request of the queue writes this candidate's ID to the record, as Transfer does, but only while the record contains
// the leader and the term that Candidates has returned last, and no target of a transfer. Otherwise it returns
// [ErrNotTransferred].
func NewQueue(e *Election) resign.Queue {
	var term atomic.Uint64 // the term that Candidates has returned last
	return resign.Queue{
		Candidates: func(ctx context.Context) ([]leaderelection.CandidateInfo, error) {
			r, err := e.readLeader(ctx)
			if err != nil || r.Leader == "" {
				return nil, err
			}
			term.Store(r.Term)
			queue := []leaderelection.CandidateInfo{{ID: r.Leader, Name: r.Leader, Token: int64(r.Term)}}
			if r.Leader != e.ID() && r.Nominee == "" && e.ready.Load() {
				queue = append(queue, leaderelection.CandidateInfo{ID: e.ID(), Name: e.ID()})
			}
			return queue, nil
		},
		Request: func(ctx context.Context, leader string) error {
			from := &Record{Leader: leader, Term: term.Load()}
			return wrapTransient(transferFrom(ctx, e.store, from, e.ID(), WithHeartbeat(e.opts.heartbeat)))
		},
	}
}

// readLeader reads the record, which contains the leader. Its error is suitable for Prefer, as wrapTransient describes.
func (e *Election) readLeader(ctx context.Context) (Record, error) {
	r, err := tryUpdate(ctx, e.opts, e.store, func(*Record) bool { return false })
	switch {
	case ctx.Err() != nil:
		return Record{}, context.Cause(ctx)
	case err != nil:
		return Record{}, wrapTransient(fmt.Errorf("changefeed: read the leader: %w", err))
	case r.Ended:
		return Record{}, leaderelection.ErrElectionOver
	}
	return r, nil
}

// wrapTransient makes err also wrap [leaderelection.ErrUnreachable], so that Prefer tries again, unless err means that
// the store is closed or the election is over.
func wrapTransient(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrClosed), errors.Is(err, leaderelection.ErrConnClosed), errors.Is(err, leaderelection.ErrElectionOver):
		return err
	}
	return unreachable{err}
}
