package client

// The elections among the peers, as programs that are not peers see them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Election returns the state of the election with the given name, including all changes that
// were confirmed before the call. An election that no candidate has joined is the zero
// Election. Election retries until ctx is done. The error wraps the cause of ctx,
// [api.ErrInvalid] if the name is empty, longer than 1 KiB or not UTF-8, [api.ErrTooLarge] if the
// election has too many candidates for one reply, [api.ErrRefused] if all peers reject the
// client, or [api.ErrClosed].
func (c *Client) Election(ctx context.Context, name string) (e api.Election, err error) {
	if err := wire.CheckElection(name); err != nil {
		return api.Election{}, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	t := trial{what: fmt.Sprintf("reading election %q", name)}
	err = c.try(ctx, t, func(ctx context.Context, caller *rpc.Caller) (err error) {
		e, err = caller.Election(ctx, name)
		return err
	})
	return e, err
}

// AskToResign requests that the candidate with the given ID resigns from the election, and
// blocks until it has left the queue. The candidate's program receives the request if it
// calls ResignRequested of the candidate; package elector does, and stops the leader's work
// before it resigns. Use a context with a deadline: a program that does not listen ignores
// the request.
//
// AskToResign returns nil as soon as the candidate has left the queue, for whatever reason.
// When ctx is done, it withdraws the request and returns the cause; a program that has
// received the request may still resign. If the candidate's peer does not confirm the
// withdrawal within 1.5 s, the error also wraps [api.ErrUnknownOutcome]: the candidate may
// receive the request later.
//
// AskToResign retries until ctx is done. The error wraps [api.ErrNoCandidate] if the candidate is
// not in the queue, [api.ErrRefused] if the candidate's peer rejects the client, or one of the
// errors of Election.
func (c *Client) AskToResign(ctx context.Context, name, candidate string) error {
	err := c.askToResign(ctx, name, candidate)
	if err != nil {
		return fmt.Errorf("raftlog: ask %s to resign from election %q: %w", candidate, name, err)
	}
	return nil
}

func (c *Client) askToResign(ctx context.Context, name, candidate string) error {
	slash := strings.LastIndexByte(candidate, '/')
	if slash < 0 {
		return fmt.Errorf("%w: it is not the ID of a candidate", api.ErrInvalid)
	}
	for asked := false; ; asked = true {
		present, err := c.isCandidate(ctx, name, candidate)
		switch {
		case err != nil:
			return err
		case !present && asked:
			return nil
		case !present:
			return api.ErrNoCandidate
		}
		peer, err := c.find(ctx, candidate[:slash])
		if err == nil {
			err = c.askAt(ctx, peer, name, candidate)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil || c.ctx.Err() != nil:
			return ended(ctx, c.ctx, err)
		case errors.Is(err, api.ErrRefused):
			return err
		default:
			// The peer does not answer, or was restarted. Then its candidates leave the queue.
			if waited := c.wait(ctx, c.pause()); waited != nil {
				return fmt.Errorf("%w; the last attempt: %w", waited, err)
			}
		}
	}
}

// isCandidate reports whether the candidate is in the queue.
func (c *Client) isCandidate(ctx context.Context, name, candidate string) (bool, error) {
	e, err := c.Election(ctx, name)
	return slices.ContainsFunc(e.Candidates, func(c api.Candidate) bool { return c.ID == candidate }), err
}

// departurePoll is the interval at which the queue is read while the candidate's peer has the
// request. The peer may be cut off from the others, which remove its candidates.
const departurePoll = time.Second

// askAt makes the request at the candidate's peer. It returns nil if the candidate has left the
// queue, or was not there any more.
func (c *Client) askAt(ctx context.Context, peer api.Peer, name, candidate string) error {
	call, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	left := false
	watching.Go(func() {
		defer cancel()
		for !left && c.wait(call, departurePoll) == nil {
			present, err := c.isCandidate(call, name, candidate)
			left = err == nil && !present
		}
	})
	err := c.attempt(call, trial{slow: true}, peer, func(ctx context.Context, caller *rpc.Caller) error {
		return caller.AskToResign(ctx, name, candidate)
	})
	cancel()
	watching.Wait()
	if left {
		return nil
	}
	return err
}
