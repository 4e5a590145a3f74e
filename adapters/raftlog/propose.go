package raftlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Propose has an update applied once, and returns the index of its entry once this peer's
// state machine has applied it. An ID that is known already, with the same data, is answered
// with the index of the first time. It may be called at any peer: one that does not lead asks
// the leader.
//
// While no leader is known, or the leader has too much to do, nothing is done and Propose
// tries again until ctx ends; then the error wraps [ErrNotLeader] or [ErrBusy]. When the
// leader is lost meanwhile, or ctx ends while it is asked, the error is [ErrUnknownOutcome]:
// proposing again, with the same ID and data, is safe, and tells. Other errors are final:
// [ErrStale], [ErrFuture], [ErrRequestIDReused], [ErrTooManyIDs], [ErrTooLarge], [ErrNoSpace], [ErrInvalid]
// for the zero ID, [ErrRefused] at a peer that was removed, and [ErrClosed] or [ErrFault].
//
// data must not be modified before Propose has returned, or ever if the outcome is unknown.
func (n *Node) Propose(ctx context.Context, id requestid.ID, data []byte) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is zero; requestid.New makes one", ErrInvalid)
	}
	return n.insist(ctx, core.Request{Kind: api.State, ID: id, Data: data, Forward: true})
}

// Propose has an update applied as [Node.Propose] does, but only while this candidate leads:
// the log itself decides, at the entry, whether the leadership is the one of this call. So
// nothing is applied after another candidate has become the first, however late this
// process, or the network, is. It is bound to the leadership at the time of the call.
//
// The error is [leaderelection.ErrNotLeader] if the candidate does not lead, or did not any
// more at the entry: nothing was applied then. Otherwise it is one of [Node.Propose].
func (e *Election) Propose(ctx context.Context, id requestid.ID, data []byte) (index uint64, err error) {
	leadership := e.feed.Current().Leadership
	switch {
	case id.IsZero():
		return 0, fmt.Errorf("%w: the request ID is zero; requestid.New makes one", ErrInvalid)
	case leadership == nil || leadership.Err() != nil:
		return 0, leaderelection.ErrNotLeader
	}
	return e.node.proposeUnder(ctx, entry.Guard{Election: e.name, Token: uint64(leadership.Token())}, id, data)
}

func (n *Node) proposeUnder(ctx context.Context, g entry.Guard, id requestid.ID, data []byte) (uint64, error) {
	index, err := n.insist(ctx, core.Request{Kind: api.State, ID: id, Data: data, Forward: true, Guard: g})
	if errors.Is(err, api.ErrFenced) {
		err = fmt.Errorf("%w: %w", leaderelection.ErrNotLeader, err)
	}
	return index, err
}

// ChangePeers makes these the voters, and returns the index of the entry by which that is
// complete; then those that are left out may be stopped. New ones are to run already, see
// Config.Peers, and to have caught up, for which they are given 20 election timeouts. First both
// the old and the new voters decide together, then the new ones alone; whichever peer leads
// completes that. Peers that are left out are removed: they take no part any more, and their IDs
// cannot be used again.
//
// id names the change: one that is repeated with the same ID is carried out once. When the
// leader is lost meanwhile, or hands over since it is to be removed, ChangePeers asks the next
// one, until ctx ends.
//
// Errors: [ErrInvalid], with what is wrong with the voters; [ErrChanging] while another
// change is under way; [ErrBusy] if new peers do not answer or have not caught up in time: then
// nothing was changed, and nothing will be; and those of [Node.Propose]. If ctx ends first, the
// error at the leader is also [ErrBusy], unless the change is in the log already.
func (n *Node) ChangePeers(ctx context.Context, id requestid.ID, voters []Peer) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is zero; requestid.New makes one", ErrInvalid)
	}
	return n.insist(ctx, core.Request{
		Kind: api.Config, ID: id, To: voters, Forward: true, Deadline: 30 * n.cfg.ElectionTimeout,
	})
}

// Sync waits until this peer's state machine has applied all that was committed anywhere
// before the call: what is read from it then is not older. The error wraps ctx's cause, or is
// [ErrRefused] at a peer that was removed, [ErrClosed] or [ErrFault].
func (n *Node) Sync(ctx context.Context) error { return n.read(ctx, (*core.Core).Read) }

// read asks by one of the core's ways to read until it is answered. What it waits for stays the
// same once it is known: more may be committed all the time.
func (n *Node) read(ctx context.Context, way func(c *core.Core, token, index uint64, deadline time.Duration)) error {
	index := uint64(0)
	for {
		reply := make(chan core.Reply, 1)
		err := n.do(ctx, func(c *core.Core) {
			n.current.token++
			n.current.waiting[n.current.token] = reply
			way(c, n.current.token, index, clock{n}.Now()+n.cfg.ElectionTimeout)
		})
		if err != nil {
			return fmt.Errorf("raftlog: sync: %w", err)
		}
		select {
		case r := <-reply:
			if r.Err == nil {
				return nil
			}
			if errors.Is(r.Err, ErrRefused) {
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

// insist asks until somebody has certainly taken the request, or certainly will not.
func (n *Node) insist(ctx context.Context, r core.Request) (uint64, error) {
	var why error // of the time before
	over := func(end error) error {
		switch {
		case why == nil, n.ctx.Err() != nil && !errors.Is(why, ErrUnknownOutcome):
			return end
		case errors.Is(why, end):
			return why
		}
		return fmt.Errorf("%w: %w", why, end)
	}
	for {
		index, asked, err := n.ask(ctx, r)
		switch {
		case err == nil:
			return index, nil
		case !asked:
			return 0, over(err)
		}
		retry := again(r, err)
		// What an ID was used for is known for all attempts.
		if errors.Is(why, ErrUnknownOutcome) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrRequestIDReused) {
			err = fmt.Errorf("%w, by an attempt before: %w", ErrUnknownOutcome, err)
		}
		if !retry {
			return index, err
		}
		why = err
		select {
		case <-time.After(n.cfg.ElectionTimeout / ticksPerTimeout):
		case <-ctx.Done():
			return 0, over(context.Cause(ctx))
		case <-n.ctx.Done():
			return 0, over(context.Cause(n.ctx))
		}
	}
}

// again tells whether to ask once more after an error. A change of the peers may have the
// leader hand over; who leads then knows what has become of it.
func again(r core.Request, err error) bool {
	if r.Kind == api.Config {
		return errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknownOutcome)
	}
	return errors.Is(err, ErrNotLeader) || errors.Is(err, ErrBusy)
}

// ask asks once, if the context and the node allow it yet: asked is false if they do not, and
// nothing was done.
func (n *Node) ask(ctx context.Context, r core.Request) (index uint64, asked bool, err error) {
	if r.Kind != api.Config && r.Deadline == 0 {
		r.Deadline = 2 * n.cfg.ElectionTimeout
	}
	r.Deadline += clock{n}.Now()
	if n.ctx.Err() != nil {
		return 0, false, context.Cause(n.ctx)
	}
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	reply := make(chan core.Reply, 1)
	select {
	case n.requests <- request{r, reply, ctx}:
	case <-ctx.Done():
		return 0, false, context.Cause(ctx)
	case <-n.ctx.Done():
		return 0, false, context.Cause(n.ctx)
	}
	select {
	case answer := <-reply:
		return answer.Index, true, answer.Err
	case <-ctx.Done():
		if r.Kind == api.Config && n.abandon(reply) {
			answer := <-reply // the loop does not wait for another peer before it sends it
			return answer.Index, true, answer.Err
		}
		return 0, true, fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
	case <-n.ended:
		select {
		case answer := <-reply:
			return answer.Index, true, answer.Err
		default: // the loop answers whatever it has taken
			return 0, false, context.Cause(n.ctx)
		}
	}
}

// abandon tries to give up a request for a change of the peers whose caller's context has ended.
// If it returns true, the loop answers the request without delay, and the answer is certain.
func (n *Node) abandon(reply chan core.Reply) (certain bool) {
	err := n.do(n.ctx, func(*core.Core) { certain = n.current.abandon(reply) })
	return err == nil && certain
}

// control has an op written.
func (n *Node) control(ctx context.Context, op entry.Op) error {
	_, err := n.insist(ctx, core.Request{Kind: api.Control, ID: requestid.New(), Op: op, Forward: true})
	return err
}
