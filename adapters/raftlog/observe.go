package raftlog

import (
	"context"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
)

// Candidates returns the candidates of an election in the order of succession, according to
// the entries that this peer has applied. Call [Node.Sync] first to include all earlier
// changes. The first candidate is the leader or is about to become the leader.
//
// Errors: [leaderelection.ErrElectionOver] if the election has ended, the cause of ctx,
// [leaderelection.ErrConnClosed], and [leaderelection.ErrInvalid] like [NewElection].
func Candidates(ctx context.Context, node *Node, name string) ([]leaderelection.CandidateInfo, error) {
	if err := checkElection(node, name); err != nil {
		return nil, err
	}
	var election replica.Election
	if err := node.callLoop(ctx, func(c *core.Core) { election = c.Replica().Elections.Get(name) }); err != nil {
		if node.Err() != nil {
			err = connClosedError(err)
		}
		return nil, err
	}
	if election.Ended {
		return nil, leaderelection.ErrElectionOver
	}
	var all []leaderelection.CandidateInfo
	for _, c := range election.Candidates {
		all = append(all, candidateInfo(c))
	}
	return all, nil
}

func candidateInfo(c replica.Candidate) leaderelection.CandidateInfo {
	name, value := record.Decode([]byte(c.Name))
	return leaderelection.CandidateInfo{ID: c.ID, Name: name, Value: value, Token: int64(c.Token)}
}

// Observe watches the leader of an election without joining it. The returned channel
// delivers the current leader according to the entries that this peer has applied, or its
// absence, and then each change. A slow reader receives only the newest observation.
// If the peer loses contact to the cluster, the last observation remains; see [api.Info].Lease.
//
// The channel is closed when ctx is done, or after a last element with
// [leaderelection.ErrElectionOver], or with [leaderelection.ErrConnClosed] if the node has
// stopped or its peer was removed from the cluster (which also wraps [api.ErrRefused]). Errors
// returned by Observe itself are those of [Candidates], except that an election that has
// ended is reported by the channel.
func Observe(ctx context.Context, node *Node, name string) (<-chan leaderelection.Observation, error) {
	if err := checkElection(node, name); err != nil {
		return nil, err
	}
	o := &observer{name: name, changed: make(chan struct{}, 1), out: make(chan leaderelection.Observation, 1)}
	// The loop adds the observer, so that no change is missed after the current queue.
	err := node.callLoop(ctx, func(c *core.Core) {
		o.setQueue(c.Replica().Elections.Get(name))
		node.mu.Lock()
		defer node.mu.Unlock()
		node.observers[o] = struct{}{}
	})
	if err == nil && !node.startGoroutine(func() { o.runObserver(ctx, node) }) {
		err = node.Err()
	}
	switch {
	case err == nil:
		return o.out, nil
	case node.Err() != nil:
		return nil, connClosedError(node.Err())
	}
	return nil, err
}

// observer is the state of a call of [Observe]. The loop publishes queues to the observer, and a separate
// goroutine delivers the changes of the leader.
type observer struct {
	name    string
	queue   atomic.Pointer[replica.Election]
	changed chan struct{}
	out     chan leaderelection.Observation // contains the newest observation until it is read; only runObserver sends
}

func (o *observer) setQueue(queue replica.Election) {
	o.queue.Store(&queue)
	signal(o.changed)
}

func (o *observer) runObserver(ctx context.Context, node *Node) {
	defer close(o.out)
	defer func() {
		node.mu.Lock()
		defer node.mu.Unlock()
		delete(node.observers, o)
	}()
	var leaders limit.Changes[leaderelection.CandidateInfo] // the zero value means that there is no leader
	for {
		select {
		case <-o.changed:
		case <-ctx.Done():
			return
		case <-node.ctx.Done():
			limit.SendNewest(o.out, leaderelection.Observation{Err: connClosedError(node.Err())})
			return
		case <-node.removed:
			limit.SendNewest(o.out, leaderelection.Observation{Err: removedError(node)})
			return
		}
		queue := o.queue.Load()
		if queue.Ended {
			limit.SendNewest(o.out, leaderelection.Observation{Err: leaderelection.ErrElectionOver})
			return
		}
		var present leaderelection.Observation
		var leader leaderelection.CandidateInfo
		if c, found := queue.Head(); found {
			leader = candidateInfo(c)
			present.Leader = &leader
		}
		if leaders.Add(leader) {
			limit.SendNewest(o.out, present) // the receiver owns the leader from now on
		}
	}
}
