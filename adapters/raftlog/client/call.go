package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// maxRedirects is the number of consecutive redirects to another leader after which a call pauses, because two
// peers may redirect to each other for a while.
const maxRedirects = 3

// permanentErrors are the errors of a peer after which the client does not retry a call.
var permanentErrors = []error{api.ErrStale, api.ErrFuture, api.ErrRequestIDReused, api.ErrTooManyIDs, api.ErrTooLarge, api.ErrInvalid, api.ErrChanging, api.ErrNoSpace}

// Propose proposes an update, and returns the index of its entry, or the index of the first
// entry if the ID was used for the same data before. It sends the update to the leader, and
// after each failure to the next peer, always with the same ID, until it is applied or ctx
// is done. ctx should have a deadline.
//
// The error wraps the cause of ctx, or a permanent error: [api.ErrStale], [api.ErrFuture],
// [api.ErrRequestIDReused], [api.ErrTooManyIDs], [api.ErrTooLarge], [api.ErrNoSpace], [api.ErrInvalid],
// [api.ErrRefused] if all peers reject the client, or [api.ErrClosed]. If it also wraps
// [api.ErrUnknownOutcome], the update may have been applied or may be applied later; otherwise
// it was not and will not be applied.
func (c *Client) Propose(ctx context.Context, id api.RequestID, data []byte) (index uint64, err error) {
	if id.IsZero() {
		return 0, fmt.Errorf("%w: the request ID is missing", api.ErrInvalid)
	}
	err = c.callAnyPeer(ctx, request{description: "propose update " + id.String(), slow: true, atLeader: true}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		index, err = caller.Propose(ctx, id, data)
		return err
	})
	return index, err
}

// ChangePeers replaces the voters, and returns the index of the entry that completes the
// change. It retries and returns errors like Propose, and [api.ErrChanging]. If ctx has a
// deadline and the new voters do not answer or do not catch up before it, the error wraps
// [api.ErrBusy] and not ErrUnknownOutcome: nothing was or will be changed.
func (c *Client) ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (index uint64, err error) {
	if id.IsZero() || len(voters) == 0 {
		return 0, fmt.Errorf("%w: the request ID or the voters are missing", api.ErrInvalid)
	}
	voters = slices.Clone(voters)
	err = c.callAnyPeer(ctx, request{description: "change peers by request " + id.String(), slow: true, atLeader: true}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		index, err = caller.ChangePeers(ctx, id, voters)
		return err
	})
	return index, err
}

// request describes a call for callAnyPeer: its name for errors, which peer can serve it, and its time
// limit.
type request struct {
	description string // what the call does, for errors: a verb and its object
	slow        bool   // the call may take until its context is done, not only CallTimeout
	atLeader    bool   // only the leader of the log can serve the call
}

// callAnyPeer calls one peer after another until a call succeeds, an error is permanent, or ctx is
// done.
func (c *Client) callAnyPeer(ctx context.Context, r request, call func(context.Context, *rpc.Caller) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("raftlog: %s: %w", r.description, context.Cause(ctx))
	}
	peer, redirects, attempts, maybeApplied := c.firstPeer(), 0, 0, false
	var previous error // the error of the last attempt that failed before ctx was done
	rejected := map[api.Peer]bool{}
	for {
		err := c.callPeer(ctx, r, peer, call)
		attempts++
		if err == nil {
			if r.atLeader {
				c.setLeader(peer)
			}
			return nil
		}
		maybeApplied = maybeApplied || errors.Is(err, api.ErrUnknownOutcome)
		fail := func(err error) error {
			// ErrRequestIDReused means that the ID belongs to other data, so that no attempt has been or will
			// be applied.
			if maybeApplied && !errors.Is(err, api.ErrUnknownOutcome) && !errors.Is(err, api.ErrRequestIDReused) {
				err = fmt.Errorf("%w of an earlier attempt: %w", api.ErrUnknownOutcome, err)
			}
			return fmt.Errorf("raftlog: %s: attempt %d, at peer %v: %w", r.description, attempts, peer, err)
		}
		if ctx.Err() != nil || c.ctx.Err() != nil {
			if err = withCause(ctx, c.ctx, err); previous != nil {
				err = fmt.Errorf("%w; the attempt before: %v", err, previous)
			}
			return fail(err)
		}
		previous = err
		if slices.ContainsFunc(permanentErrors, func(f error) bool { return errors.Is(err, f) }) {
			return fail(err)
		}
		if errors.Is(err, api.ErrRefused) {
			rejected[peer] = true
			if !slices.ContainsFunc(c.peers(), func(p api.Peer) bool { return !rejected[p] }) {
				return fail(err)
			}
		} else {
			delete(rejected, peer)
		}
		c.forgetLeader(peer)
		not, ok := errors.AsType[*api.NotLeaderError](err)
		namesLeader := ok && not.Leader.Addr != ""
		if namesLeader && r.atLeader && not.Leader != peer && redirects < maxRedirects {
			redirects++
			peer = not.Leader
			c.setLeader(peer)
			continue
		}
		if !namesLeader && !errors.Is(err, api.ErrBusy) {
			// Look for other peers, because this peer does not answer, or was removed and does not know the
			// leader.
			c.requestRefresh()
		}
		redirects = 0
		if cause := c.sleep(ctx, c.randomPause()); cause != nil {
			return fail(fmt.Errorf("%w; the last attempt: %w", cause, err))
		}
		// Try the leader next, if it is known: another call may have found it in the meantime.
		if leader := c.leader(); leader != (api.Peer{}) && leader != peer {
			peer = leader
		} else {
			peer = c.nextPeer(peer)
		}
	}
}

// withCause adds the causes of those contexts that are done to err, unless err already wraps them.
func withCause(ctx, client context.Context, err error) error {
	for _, ctx := range []context.Context{ctx, client} {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w; the last attempt: %w", cause, err)
		}
	}
	return err
}

// callPeer calls one peer, without retries.
func (c *Client) callPeer(ctx context.Context, r request, p api.Peer, call func(context.Context, *rpc.Caller) error) error {
	if !r.slow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.CallTimeout, errNoReply)
		defer cancel()
	}
	caller, err := c.connectedCaller(ctx, p)
	if err != nil {
		return err
	}
	return call(ctx, caller)
}

// errNoReply is the cause of the context of a call that has exceeded CallTimeout.
var errNoReply = errors.New("no reply in time")
