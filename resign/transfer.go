package resign

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// Transfer makes the candidate with the given ID the leader of the election at node, and returns nil when that
// candidate is the first in the queue. Transfer requests the candidates ahead of it to resign: first those between
// it and the leader, and then the leader. Programs that use Elector of package elector, and the command elector,
// join again at the end of the queue. In programs that use elector.Lead, Lead returns elector.ErrWithdrawn.
//
// A candidate that does not receive requests keeps its place, and Transfer waits for it until ctx is done. It then
// withdraws the request and returns an error that wraps the cause of ctx. The leader leads on unless all others
// have left their places.
//
// The error wraps [leaderelection.ErrNotTransferred] if there is no candidate with this ID, or it leaves.
// Other errors are those of [Request], except ErrNoCandidate.
func Transfer(ctx context.Context, conn *zk.Conn, node, id string) error {
	return NewQueue(conn, node).Transfer(ctx, id)
}

// NewQueue returns the queue of the election at node on ZooKeeper. It sends nothing.
func NewQueue(conn *zk.Conn, node string) Queue {
	return Queue{
		Candidates: func(ctx context.Context) ([]leaderelection.CandidateInfo, error) {
			return leaderelection.Candidates(ctx, conn, node)
		},
		Request: func(ctx context.Context, id string) error { return Request(ctx, conn, node, id) },
	}
}

// Queue is an election on any backend whose candidates lead in the order in which they have joined. On
// changefeeds, which have no order, it consists of the leader and one candidate.
type Queue struct {
	// Candidates returns the candidates in the order of succession, the leader first.
	Candidates func(ctx context.Context) ([]leaderelection.CandidateInfo, error)
	// Request requests a candidate to resign, and returns nil when it has left. Its error wraps
	// [ErrNoCandidate] if it had left before.
	Request func(ctx context.Context, id string) error
}

// Transfer makes the candidate with this ID the leader, as the function [Transfer] does.
func (q Queue) Transfer(ctx context.Context, id string) error {
	return q.transferFrom(ctx, leaderelection.CandidateInfo{}, id)
}

// transferFrom is like Transfer, but returns an error as soon as another leader than the given one leads,
// or the same one with another token. The zero value means any leader.
func (q Queue) transferFrom(ctx context.Context, leader leaderelection.CandidateInfo, id string) error {
	for {
		candidates, err := q.Candidates(ctx)
		if err != nil {
			return fmt.Errorf("transfer the leadership to %s: %w", id, err)
		}
		ahead := slices.IndexFunc(candidates, func(c leaderelection.CandidateInfo) bool { return c.ID == id })
		switch {
		case ahead < 0:
			return fmt.Errorf("transfer the leadership to %s: %w: no candidate has this ID", id, leaderelection.ErrNotTransferred)
		case ahead == 0:
			return nil
		case leader.ID != "" && !isSameLeadership(candidates[0], leader):
			return fmt.Errorf("transfer the leadership to %s: %w: %s leads now", id, leaderelection.ErrNotTransferred, candidates[0].ID)
		}
		// Ask the leader last, so that it hands over to the candidate with this ID. Candidates that join
		// again are behind that candidate.
		err = q.Request(ctx, candidates[ahead-1].ID)
		if err != nil && !errors.Is(err, ErrNoCandidate) {
			return fmt.Errorf("transfer the leadership to %s: %d candidates are still ahead: %w", id, ahead, err)
		}
	}
}

// isSameLeadership reports whether two candidates are the same, and lead with the same token.
func isSameLeadership(a, b leaderelection.CandidateInfo) bool {
	return a.ID == b.ID && a.Token == b.Token
}
