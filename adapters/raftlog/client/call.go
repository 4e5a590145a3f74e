package client

// A call, tried at one peer after the other.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// redirects is how many peers in a row may name another leader before a call waits: those
// who name each other would keep it busy.
const redirects = 3

// final are the errors that trying again does not change.
var final = []error{api.ErrStale, api.ErrFuture, api.ErrRequestIDReused, api.ErrTooManyIDs, api.ErrTooLarge, api.ErrInvalid, api.ErrChanging, api.ErrNoSpace}

// Propose proposes an update, and returns the index of its entry, or that of the first one
// if the ID was used for the same data before. It sends the update to the leader, and after
// each failure to the next peer, always with the same ID, until it is applied or ctx is
// done. ctx should have a deadline.
//
// The error wraps the cause of ctx, or a permanent error: [api.ErrStale], [api.ErrFuture],
// [api.ErrRequestIDReused], [api.ErrTooManyIDs], [api.ErrTooLarge], [api.ErrNoSpace], [api.ErrInvalid],
// [api.ErrRefused] if all peers reject the client, or [api.ErrClosed]. If it also wraps
// [api.ErrUnknownOutcome], the update may have been applied or may be applied later; otherwise
// it was not and will not be applied.
func (c *Client) Propose(ctx context.Context, id requestid.ID, data []byte) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is missing", api.ErrInvalid)
	}
	err = c.try(ctx, trial{what: "proposing update " + id.String(), slow: true, atLeader: true}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		index, err = caller.Propose(ctx, id, data)
		return err
	})
	return index, err
}

// ChangePeers replaces the voters, and returns the index of the entry that completes the
// change. It retries and returns errors like Propose, and [api.ErrChanging]. If ctx has a
// deadline and the new voters do not answer or do not catch up before it, the error wraps
// [api.ErrBusy] and not ErrUnknownOutcome: nothing was or will be changed.
func (c *Client) ChangePeers(ctx context.Context, id requestid.ID, voters []api.Peer) (index uint64, err error) {
	if id.IsZero() || len(voters) == 0 {
		return 0, fmt.Errorf("%w: the request ID or the voters are missing", api.ErrInvalid)
	}
	voters = slices.Clone(voters)
	err = c.try(ctx, trial{what: "changing the peers by request " + id.String(), slow: true, atLeader: true}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		index, err = caller.ChangePeers(ctx, id, voters)
		return err
	})
	return index, err
}

// trial is what is tried.
type trial struct {
	what     string
	slow     bool // takes as long as its context allows, not only CallTimeout
	atLeader bool // only the leader of the log does it
}

// try has run tried at peers until one has done it.
func (c *Client) try(ctx context.Context, t trial, run func(context.Context, *rpc.Caller) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("raftlog: %s: %w", t.what, context.Cause(ctx))
	}
	peer, followed, attempts, maybe := c.firstPeer(), 0, 0, false
	refused := map[api.Peer]bool{}
	for {
		err := c.attempt(ctx, t, peer, run)
		attempts++
		if err == nil {
			if t.atLeader {
				c.setLeader(peer)
			}
			return nil
		}
		maybe = maybe || errors.Is(err, api.ErrUnknownOutcome)
		fail := func(err error) error {
			// What an ID was used for is known for all attempts.
			if maybe && !errors.Is(err, api.ErrUnknownOutcome) && !errors.Is(err, api.ErrRequestIDReused) {
				err = fmt.Errorf("%w of an earlier attempt: %w", api.ErrUnknownOutcome, err)
			}
			return fmt.Errorf("raftlog: %s: attempt %d, at peer %v: %w", t.what, attempts, peer, err)
		}
		if ctx.Err() != nil || c.ctx.Err() != nil {
			return fail(ended(ctx, c.ctx, err))
		}
		if slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			return fail(err)
		}
		if errors.Is(err, api.ErrRefused) {
			refused[peer] = true
			if !slices.ContainsFunc(c.peers(), func(p api.Peer) bool { return !refused[p] }) {
				return fail(err)
			}
		} else {
			delete(refused, peer)
		}
		c.notLeader(peer)
		if not, ok := errors.AsType[*api.NotLeaderError](err); ok && t.atLeader && not.Leader.Addr != "" && not.Leader != peer && followed < redirects {
			followed++
			peer = not.Leader
			c.setLeader(peer)
			continue
		} else if !ok && !errors.Is(err, api.ErrBusy) {
			signal(c.refresh)
		}
		followed = 0
		if waited := c.wait(ctx, c.pause()); waited != nil {
			return fail(fmt.Errorf("%w; the last attempt: %w", waited, err))
		}
		// Others may have found the leader meanwhile.
		if leader := c.leader(); leader != (api.Peer{}) && leader != peer {
			peer = leader
		} else {
			peer = c.peerAfter(peer)
		}
	}
}

// ended adds why a call has ended to an error that does not say so.
func ended(ctx, client context.Context, err error) error {
	for _, ctx := range []context.Context{ctx, client} {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w; the last attempt: %w", cause, err)
		}
	}
	return err
}

// attempt tries once.
func (c *Client) attempt(ctx context.Context, t trial, p api.Peer, run func(context.Context, *rpc.Caller) error) error {
	if !t.slow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.CallTimeout, errNoAnswer)
		defer cancel()
	}
	caller, err := c.to(ctx, p)
	if err != nil {
		return err
	}
	return run(ctx, caller)
}

var errNoAnswer = errors.New("no reply in time")

// signal puts a token into a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
