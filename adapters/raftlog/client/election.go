package client

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
	r := request{description: fmt.Sprintf("read election %q", name)}
	err = c.callAnyPeer(ctx, r, func(ctx context.Context, caller *rpc.Caller) (err error) {
		e, err = caller.Election(ctx, name)
		return err
	})
	return e, err
}

// RequestResign requests that the candidate with the given ID resigns from the election, and
// blocks until it has left the queue. The candidate's program receives the request if it
// calls ResignRequested of the candidate; package elector does, and stops the leader's work
// before it resigns. Use a context with a deadline: a program that does not listen ignores
// the request.
//
// RequestResign returns nil as soon as the candidate has left the queue, for whatever reason.
// When ctx is done, it withdraws the request and returns the cause; a program that has
// received the request may still resign. If the candidate's peer does not confirm the
// withdrawal within 1.5 s, the error also wraps [api.ErrUnknownOutcome]: the candidate may
// receive the request later.
//
// RequestResign retries until ctx is done. The error wraps [api.ErrNoCandidate] if the candidate is
// not in the queue, [api.ErrRefused] if the candidate's peer rejects the client, or one of the
// errors of Election.
func (c *Client) RequestResign(ctx context.Context, name, candidate string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("raftlog: request %s to resign from election %q: %w", candidate, name, err)
		}
	}()
	slash := strings.LastIndexByte(candidate, '/')
	if slash < 0 {
		return fmt.Errorf("%w: the ID of a candidate must contain a slash", api.ErrInvalid)
	}
	for requested := false; ; requested = true {
		present, err := c.isCandidate(ctx, name, candidate)
		switch {
		case err != nil:
			return err
		case !present && requested:
			return nil
		case !present:
			return api.ErrNoCandidate
		}
		peer, err := c.findPeer(ctx, candidate[:slash])
		if err == nil {
			err = c.requestResignation(ctx, peer, name, candidate)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil || c.ctx.Err() != nil:
			return withCause(ctx, c.ctx, err)
		case errors.Is(err, api.ErrRefused):
			return err
		default:
			// Retry: the peer does not answer or was restarted, and its candidates are removed from the
			// queue soon.
			if cause := c.sleep(ctx, c.randomPause()); cause != nil {
				return fmt.Errorf("%w; the last attempt: %w", cause, err)
			}
		}
	}
}

// isCandidate reports whether the candidate is in the queue of the election.
func (c *Client) isCandidate(ctx context.Context, name, candidate string) (bool, error) {
	e, err := c.Election(ctx, name)
	return slices.ContainsFunc(e.Candidates, func(c api.Candidate) bool { return c.ID == candidate }), err
}

// queuePollInterval is the interval at which RequestResign reads the queue while it waits for the candidate's
// peer. If this peer is partitioned, the other peers remove its candidates from the queue.
const queuePollInterval = time.Second

// requestResignation sends the request to resign to the candidate's peer, and waits for the reply. It returns
// nil if the candidate has left the queue.
func (c *Client) requestResignation(ctx context.Context, peer api.Peer, name, candidate string) error {
	call, cancel := context.WithCancel(ctx)
	var poller sync.WaitGroup
	left := false
	poller.Go(func() {
		defer cancel()
		for !left && c.sleep(call, queuePollInterval) == nil {
			present, err := c.isCandidate(call, name, candidate)
			left = err == nil && !present
		}
	})
	err := c.callPeer(call, request{slow: true}, peer, func(ctx context.Context, caller *rpc.Caller) error {
		return caller.RequestResign(ctx, name, candidate)
	})
	cancel()
	poller.Wait()
	if left {
		return nil
	}
	return err
}
