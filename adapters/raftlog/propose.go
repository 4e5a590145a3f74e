package raftlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Propose proposes an update, and blocks until this peer's state machine has applied it. It
// returns the index of its entry. If the ID was used before with the same data, the update
// is not applied again, and Propose returns the index of the first time. Propose may be
// called at any peer, which forwards the update to the leader of the log.
//
// While no leader is known, or while the leader is overloaded or the same update is in progress as an update
// of a leadership ([Election.Propose]), Propose retries until ctx is done; then the error wraps
// [api.ErrNotLeader] or [api.ErrBusy], and this call has changed nothing. If the leader is lost during the
// request, or ctx is done while it is in flight, the error wraps [api.ErrUnknownOutcome]: it is safe to
// propose the update again with the same ID and data, which determines the outcome. Other errors are
// permanent: [api.ErrStale], [api.ErrFuture], [api.ErrRequestIDReused], [api.ErrTooManyIDs],
// [api.ErrTooLarge], [api.ErrNoSpace], [api.ErrInvalid] for the zero ID, [api.ErrRefused] at a peer that was
// removed, and [api.ErrClosed] or [api.ErrFault].
//
// data must not be modified before Propose has returned. If the outcome is unknown, it must
// never be modified.
func (n *Node) Propose(ctx context.Context, id api.RequestID, data []byte) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is zero; create one with api.NewRequestID", api.ErrInvalid)
	}
	return n.proposeUntilKnown(ctx, core.Request{Kind: api.KindState, ID: id, Data: data, Forward: true})
}

// Propose proposes an update like [Node.Propose], but the update is applied only during l, a
// leadership of this candidate: when the entry is applied, the log compares l with the
// current leadership. Nothing is applied after l has ended and another candidate has become
// the first of the queue, or the same candidate again, regardless of delays of this process
// or the network.
//
// The error wraps [leaderelection.ErrNotLeader] if l is nil or had ended, at the call or at
// the entry: nothing was applied. Other errors are those of [Node.Propose].
func (e *Election) Propose(ctx context.Context, l *leaderelection.Leadership, id api.RequestID, data []byte) (index uint64, err error) {
	switch {
	case id.IsZero():
		return 0, fmt.Errorf("%w: the request ID is zero; create one with api.NewRequestID", api.ErrInvalid)
	case l == nil:
		return 0, leaderelection.ErrNotLeader
	}
	if err := l.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", leaderelection.ErrNotLeader, err)
	}
	return e.node.proposeGuarded(ctx, replica.Guard{Election: e.name, Token: uint64(l.Token())}, id, data)
}

// proposeGuarded proposes an update that is applied only during the leadership in g. If this leadership is
// over, the error wraps api.ErrFenced and leaderelection.ErrNotLeader.
func (n *Node) proposeGuarded(ctx context.Context, g replica.Guard, id api.RequestID, data []byte) (uint64, error) {
	index, err := n.proposeUntilKnown(ctx, core.Request{Kind: api.KindState, ID: id, Data: data, Forward: true, Guard: g})
	if errors.Is(err, api.ErrFenced) {
		err = fmt.Errorf("%w: %w", leaderelection.ErrNotLeader, err)
	}
	return index, err
}

// ChangePeers replaces the voters, and returns the index of the entry that completes the
// change. After that, removed peers may be stopped. New peers must already be running, see
// Config.Peers, and must catch up within 20 election timeouts. During the change decisions
// require a majority of both the old and the new voters. If the leader changes, the new
// leader completes the change. Removed peers do not participate any more, and their IDs
// must not be used again.
//
// id identifies the change: a change that is retried with the same ID is executed once. If
// the leader is lost, or hands over because it will be removed, ChangePeers retries with
// the next leader until ctx is done.
//
// Errors: [api.ErrInvalid] with the reason if voters is invalid; [api.ErrChanging] while another
// change is in progress; [api.ErrBusy] if new peers do not answer or have not caught up in
// time, in which case nothing was or will be changed; and those of [Node.Propose]. If ctx
// is done first, the error at the leader is also [api.ErrBusy], unless the change is already in
// the log.
func (n *Node) ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is zero; create one with api.NewRequestID", api.ErrInvalid)
	}
	return n.proposeUntilKnown(ctx, core.Request{
		Kind: api.KindConfig, ID: id, Voters: voters, Forward: true, Deadline: 30 * n.cfg.ElectionTimeout,
	})
}

// Sync blocks until this peer's state machine has applied all entries that were committed before the call, at
// any peer, so that later reads of the state machine include them. The error wraps the cause of ctx, or
// [api.ErrRefused] at a peer that was removed, or [api.ErrClosed] or [api.ErrFault].
func (n *Node) Sync(ctx context.Context) error { return n.readLinearizable(ctx, (*core.Core).Read) }

// readLinearizable calls read, which is Read or ReadReplica of the core, until it succeeds. After a timeout,
// the next call waits only for the index that the failed call has returned, because entries that are
// committed in the meantime could otherwise delay it forever.
func (n *Node) readLinearizable(ctx context.Context, read func(c *core.Core, token, index uint64, deadline time.Duration)) error {
	index := uint64(0)
	for {
		reply := make(chan core.Reply, 1)
		err := n.callLoop(ctx, func(c *core.Core) {
			read(c, n.loop.addWaiting(reply), index, nodeClock{n}.Now()+n.cfg.ElectionTimeout)
		})
		if err != nil {
			return fmt.Errorf("raftlog: sync: %w", err)
		}
		select {
		case r := <-reply:
			if r.Err == nil {
				return nil
			}
			if errors.Is(r.Err, api.ErrRefused) {
				return fmt.Errorf("raftlog: sync: %w", r.Err)
			}
			index = r.Index
		case <-ctx.Done():
			return fmt.Errorf("raftlog: sync: %w", context.Cause(ctx))
		case <-n.ctx.Done():
			return fmt.Errorf("raftlog: sync: %w", context.Cause(n.ctx))
		}
	}
}

// proposeUntilKnown proposes a request, and proposes it again after each error for which isRetryable returns
// true, until ctx is done. The error wraps ErrUnknownOutcome if any attempt may have been applied.
func (n *Node) proposeUntilKnown(ctx context.Context, r core.Request) (uint64, error) {
	var last error // the error of the previous attempt, or nil
	stopped := func(cause error) error {
		switch {
		case last == nil, n.ctx.Err() != nil && !errors.Is(last, api.ErrUnknownOutcome):
			return cause
		case errors.Is(last, cause):
			return last
		}
		return fmt.Errorf("%w: %w", last, cause)
	}
	for {
		index, proposed, err := n.proposeOnce(ctx, r)
		switch {
		case err == nil:
			return index, nil
		case !proposed:
			return 0, stopped(err)
		}
		retry := isRetryable(r, err)
		// ErrRequestIDReused means that the ID belongs to other data, so that no attempt of this call has
		// been or will be applied.
		if errors.Is(last, api.ErrUnknownOutcome) && !errors.Is(err, api.ErrUnknownOutcome) && !errors.Is(err, api.ErrRequestIDReused) {
			err = fmt.Errorf("%w of an earlier attempt: %w", api.ErrUnknownOutcome, err)
		}
		if !retry {
			return index, err
		}
		last = err
		select {
		case <-time.After(n.cfg.ElectionTimeout / ticksPerTimeout):
		case <-ctx.Done():
			return 0, stopped(context.Cause(ctx))
		case <-n.ctx.Done():
			return 0, stopped(context.Cause(n.ctx))
		}
	}
}

// isRetryable reports whether proposeUntilKnown must retry a request after an error. A change of the voters
// is retried even if its outcome is unknown: it can make the leader hand over, and the next leader knows the
// outcome.
func isRetryable(r core.Request, err error) bool {
	if r.Kind == api.KindConfig {
		return errors.Is(err, api.ErrNotLeader) || errors.Is(err, api.ErrUnknownOutcome)
	}
	return errors.Is(err, api.ErrNotLeader) || errors.Is(err, api.ErrBusy)
}

// proposeOnce passes a request to the loop once, and waits for the reply. proposed is false if the context was
// done or the node has stopped before the loop received the request.
func (n *Node) proposeOnce(ctx context.Context, r core.Request) (index uint64, proposed bool, err error) {
	if r.Kind != api.KindConfig && r.Deadline == 0 {
		r.Deadline = 2 * n.cfg.ElectionTimeout
	}
	r.Deadline += nodeClock{n}.Now()
	if n.ctx.Err() != nil {
		return 0, false, context.Cause(n.ctx)
	}
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	q, _ := n.idle.Get().(*loopRequest)
	if q == nil {
		q = &loopRequest{reply: make(chan core.Reply, 1)}
	}
	q.Request, q.ctx = r, ctx
	select {
	case n.requests <- q: // the channel usually has space, and a select with one channel is faster than the following one
	default:
		select {
		case n.requests <- q:
		case <-ctx.Done():
			return 0, false, context.Cause(ctx)
		case <-n.ctx.Done():
			return 0, false, context.Cause(n.ctx)
		}
	}
	select {
	case reply := <-q.reply:
		q.Request, q.ctx = core.Request{}, nil
		n.idle.Put(q)
		return reply.Index, true, reply.Err
	case <-ctx.Done():
		if r.Kind == api.KindConfig && n.abandonChange(q.reply) {
			reply := <-q.reply // the loop sends this reply without waiting for another peer
			return reply.Index, true, reply.Err
		}
		return 0, true, fmt.Errorf("%w: %w", api.ErrUnknownOutcome, context.Cause(ctx))
	case <-n.ended:
		select {
		case reply := <-q.reply:
			return reply.Index, true, reply.Err
		default: // the loop has not received the request, because it replies to each request that it receives
			return 0, false, context.Cause(n.ctx)
		}
	}
}

// abandonChange tries to abandon a change of the voters whose caller's context is done. If it returns
// true, the loop replies without delay, and the outcome is certain.
func (n *Node) abandonChange(replies chan core.Reply) (certain bool) {
	err := n.callLoop(n.ctx, func(*core.Core) { certain = n.loop.abandonChange(replies) })
	return err == nil && certain
}

// proposeOp proposes an operation on an election, as a control entry, with the retries of proposeUntilKnown.
func (n *Node) proposeOp(ctx context.Context, op replica.Op) error {
	_, err := n.proposeUntilKnown(ctx, core.Request{Kind: api.KindControl, ID: api.NewRequestID(), Op: op, Forward: true})
	return err
}
