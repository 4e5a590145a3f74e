package etcd

// This file implements requests to resign, by which a program asks the candidate of another program to resign, so
// that the other program can end its work first. A request is part of the value of the election node. It is not a
// key below the node, because candidates of etcd's package concurrency would wait until that key is deleted.

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/resign"
)

// RequestResign requests that the candidate with the given ID resigns from the election at
// node, and blocks until the candidate's key does not exist any more. It is meant for
// programs other than the candidate's. A candidate receives the request only if its program
// calls [Election.ResignRequested]; package elector does, and stops the leader's work
// before it resigns. The request does not affect other candidates. Candidates of etcd's
// package concurrency do not receive requests.
//
// RequestResign returns nil as soon as the key does not exist, for whatever reason. When ctx
// is done, RequestResign withdraws the request if it was made, and returns an error that
// wraps the cause of ctx. If etcd does not confirm the withdrawal within 1.5 s, the error
// includes the reason, and the request may remain.
//
// Errors: [resign.ErrNoCandidate] if the candidate does not exist,
// [leaderelection.ErrNoElection], [resign.ErrForeignData] if the value of the
// election node is not that of a request, [leaderelection.ErrPermission] if the client's
// user is not allowed to write that value, [leaderelection.ErrInvalid] if client is nil, node
// is not valid, or id is not the ID of a candidate of this election. After these errors
// nothing was changed.
// [leaderelection.ErrUnreachable] is returned if etcd did not confirm the request within
// the session timeout. Three errors can also be returned after the request was made:
// [leaderelection.ErrConnClosed], and, if the value of the election node or the user's role
// is changed then, [resign.ErrForeignData] and [leaderelection.ErrPermission].
func RequestResign(ctx context.Context, client *clientv3.Client, node, id string, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if o.ctx = ctx; ctx == nil {
		return fmt.Errorf("%w: the context is nil", leaderelection.ErrInvalid)
	}
	if err := checkArguments(client, node); err != nil {
		return err
	}
	if namedLease(node, id) == 0 {
		return fmt.Errorf("%w: %q is not the ID of a candidate in %s", leaderelection.ErrInvalid, id, node)
	}
	r := &resignRequest{options: o, client: client, node: node, id: id, name: path.Base(id)}
	if err := r.sendAndWait(); err != nil {
		return fmt.Errorf("request %s to resign: %w", id, err)
	}
	return nil
}

// Transfer makes the candidate with the given ID the leader of the election at node, as [resign.Transfer] does on
// ZooKeeper: it requests the candidates that precede it in the queue to resign. It returns nil when the candidate is
// the first in the queue. Candidates of etcd's package concurrency do not receive requests and keep their places. The
// error wraps [leaderelection.ErrNotTransferred] if there is no candidate with this ID, or if it leaves. Other errors
// are those of [RequestResign], except resign.ErrNoCandidate.
func Transfer(ctx context.Context, client *clientv3.Client, node, id string, opts ...Option) error {
	return NewQueue(client, node, opts...).Transfer(ctx, id)
}

// NewQueue returns the queue of the election at node, for package resign. NewQueue sends no requests.
func NewQueue(client *clientv3.Client, node string, opts ...Option) resign.Queue {
	return resign.Queue{
		Candidates: func(ctx context.Context) ([]leaderelection.CandidateInfo, error) {
			return Candidates(ctx, client, node, opts...)
		},
		Request: func(ctx context.Context, id string) error { return RequestResign(ctx, client, node, id, opts...) },
	}
}

// resignRequest is a call of RequestResign.
type resignRequest struct {
	options        *options
	client         *clientv3.Client
	node, id, name string
	written        bool // written reports whether the request may have been written.
}

// sendAndWait writes the request, waits until the candidate has left, and withdraws the request.
func (r *resignRequest) sendAndWait() error {
	err := r.options.retryWithinTimeout(r.client, func(ctx context.Context) error { return r.updateNames(ctx, r.addName) })
	if err == nil {
		err = r.waitForDeletion()
	}
	if r.written {
		if failed := r.withdraw(); err != nil && failed != nil {
			err = fmt.Errorf("%w; the request may not be withdrawn: %w", err, failed)
		}
	}
	return err
}

// addName returns names with the name of the requested candidate. present are the names of all candidates in the
// queue.
func (r *resignRequest) addName(names, present []string) ([]string, error) {
	switch {
	case slices.Contains(present, r.name):
	case r.written: // The candidate has resigned after an earlier attempt whose reply was lost.
		return names, nil
	default:
		return nil, &permanentError{resign.ErrNoCandidate}
	}
	return record.AddRequests(names, present, r.name), nil
}

// removeName returns names without the name of the candidate that was requested to resign.
func (r *resignRequest) removeName(names, _ []string) ([]string, error) {
	return record.RemoveRequests(names, r.name), nil
}

// withdraw removes the candidate's name from the requests in the election node.
func (r *resignRequest) withdraw() error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.options.ctx), limit.Confirm, errUnreachable)
	defer cancel()
	err := retry(ctx, r.client, limit.Confirm, func(ctx context.Context) error { return r.updateNames(ctx, r.removeName) })
	if errors.Is(err, leaderelection.ErrNoElection) {
		return nil
	}
	return err
}

// updateNames replaces the names in the value of the election node by those that f returns, given these names and
// the names of all candidates. It writes even if f changes nothing: an earlier write whose response was lost
// may be executed late, and is rejected if the node has a newer revision.
func (r *resignRequest) updateNames(ctx context.Context, f func(names, present []string) ([]string, error)) error {
	for {
		s, err := readSnapshot(ctx, r.client, r.node, 0)
		if err != nil {
			return err
		}
		if s.node == nil {
			return &permanentError{errNoElection}
		}
		names, ok := record.ParseRequests(s.node.Value)
		if !ok {
			return &permanentError{fmt.Errorf("%w: %q", errForeignData, s.node.Value[:min(len(s.node.Value), 40)])}
		}
		var present []string
		for _, kv := range s.candidates {
			present = append(present, path.Base(string(kv.Key)))
		}
		names, err = f(names, present)
		if err != nil {
			return err
		}
		written, err := r.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(r.node), "=", s.node.ModRevision)).
			Then(clientv3.OpPut(r.node, string(record.FormatRequests(names)), clientv3.WithIgnoreLease())).
			Commit()
		r.written = r.written || err == nil && written.Succeeded || err != nil && !isRejected(err)
		if err != nil || written.Succeeded {
			return err
		}
	}
}

// waitForDeletion waits until the candidate's key does not exist any more. Meanwhile it adds the name to the value
// again if it is missing: calls that request the same candidate share one name, which each of them removes when
// it is withdrawn.
func (r *resignRequest) waitForDeletion() error {
	for {
		var revision int64
		var exists bool
		if err := retry(r.options.ctx, r.client, r.options.timeout/2, func(ctx context.Context) error {
			s, err := readSnapshot(ctx, r.client, r.node, 0)
			if err != nil {
				return err
			}
			revision = s.revision
			exists = slices.ContainsFunc(s.candidates, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == r.id })
			if !exists || s.node == nil {
				return nil
			}
			if names, _ := record.ParseRequests(s.node.Value); slices.Contains(names, r.name) {
				return nil
			}
			return r.updateNames(ctx, r.addName)
		}); err != nil || !exists {
			return err
		}
		key := watchDeletion(r.options.ctx, r.client, r.id, revision+1)
		value := newWatch(r.options.ctx, r.client, r.node, revision+1, clientv3.WithFilterDelete())
		err := waitForChange(r.options.ctx, r.client, key, value)
		key.close()
		value.close()
		if err != nil {
			return err
		}
	}
}

// ResignRequested returns a channel that is closed when a client requests this candidate's resignation
// with [RequestResign]. The request has no other effect: a leader should stop its work and then call
// Resign. The channel is not closed when the candidacy ends, so callers should also wait until the
// candidacy is over.
//
// After the first call, the candidate watches the value of the election node. A request that
// was made before the call is noticed as well. A candidate that never calls ResignRequested
// does not notice requests.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resignRequested == nil {
		e.resignRequested = make(chan struct{})
		e.listening <- struct{}{} // does not block: the channel has capacity for the only value it receives
	}
	return e.resignRequested
}

// openResignRequested returns the channel of ResignRequested if it is not closed yet, and nil if it
// is closed or ResignRequested was not called.
func (e *Election) openResignRequested() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resignRequested == nil || isClosed(e.resignRequested) {
		return nil
	}
	return e.resignRequested
}

// checkResignRequests closes the channel of ResignRequested if v contains a request to this candidate. Otherwise it
// watches for the next request.
func (n *entry) checkResignRequests(v *view) {
	requested := n.election.openResignRequested()
	if requested == nil {
		return
	}
	if names, _ := record.ParseRequests(v.nodeValue); slices.Contains(names, path.Base(n.key.name)) {
		close(requested)
		n.nodeWatch.close()
		n.nodeWatch = nil
		return
	}
	if n.nodeWatch == nil {
		n.nodeWatch = newWatch(n.ctx, n.election.client, n.election.node, v.revision+1, clientv3.WithFilterDelete())
	}
}
