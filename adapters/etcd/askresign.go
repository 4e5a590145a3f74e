package etcd

// A program requests the candidate of another program to resign, so that the other program can
// first end its work. The request is in the value of the election node. A key below the node
// would be in the way of candidates of etcd's package concurrency.

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/resignation"
)

// AskToResign requests that the candidate with the given ID resigns from the election at
// node, and blocks until the candidate's key does not exist any more. It is meant for
// programs other than the candidate's. A candidate receives the request only if its program
// calls [Election.ResignRequested]; package elector does, and stops the leader's work
// before it resigns. The request does not affect other candidates. Candidates of etcd's
// package concurrency do not receive requests.
//
// AskToResign returns nil as soon as the key does not exist, for whatever reason. Use
// [WithContext] to bound the wait. When that context is done, AskToResign withdraws the
// request if it was made, and returns an error that wraps the context's cause. If etcd does
// not confirm the withdrawal within 1.5 s, the error includes the reason, and the request
// may remain.
//
// Errors: [leaderelection.ErrNoCandidate] if the candidate does not exist,
// [leaderelection.ErrNoElection], [leaderelection.ErrForeignData] if the value of the
// election node is not that of a request, [leaderelection.ErrPermission] if the client's
// user is not allowed to write that value, [leaderelection.ErrInvalidOption] if id is not
// the ID of a candidate of this election, [leaderelection.ErrInvalidPath] and
// [leaderelection.ErrNilConn]. After these errors nothing was changed.
// [leaderelection.ErrUnreachable] is returned if etcd did not confirm the request within
// the session timeout. [leaderelection.ErrConnClosed] can also be returned after the
// request was made.
func AskToResign(client *clientv3.Client, node, id string, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := check(client, node); err != nil {
		return err
	}
	name := path.Base(id)
	if lease, err := strconv.ParseUint(name, 16, 64); err != nil || keyOf(node, clientv3.LeaseID(lease)) != id {
		return fmt.Errorf("%w: %q is not the ID of a candidate in %s", leaderelection.ErrInvalidOption, id, node)
	}
	a := &asking{options: o, client: client, node: node, id: id, name: name}
	if err := a.ask(); err != nil {
		return fmt.Errorf("ask %s to resign: %w", id, err)
	}
	return nil
}

// asking is one call of AskToResign.
type asking struct {
	*options
	client         *clientv3.Client
	node, id, name string
	written        bool // the request may have been written
}

func (a *asking) ask() error {
	err := a.options.ask(a.client, func(ctx context.Context) error { return a.change(ctx, a.add) })
	if err == nil {
		err = a.gone()
	}
	if a.written {
		if failed := a.withdraw(); err != nil && failed != nil {
			err = fmt.Errorf("%w; the request may not be withdrawn: %w", err, failed)
		}
	}
	return err
}

// add adds the name, given the keys below the election node.
func (a *asking) add(names, present []string) ([]string, error) {
	switch {
	case slices.Contains(present, a.name):
	case a.written: // an earlier attempt whose reply was lost has been obeyed
		return names, nil
	default:
		return nil, &endError{leaderelection.ErrNoCandidate}
	}
	return resignation.Add(names, present, a.name), nil
}

func (a *asking) remove(names, _ []string) ([]string, error) {
	return resignation.Remove(names, a.name), nil
}

// withdraw removes the name from the requests.
func (a *asking) withdraw() error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(a.ctx), limit.Confirm, errUnreachable)
	defer cancel()
	err := again(ctx, a.client, limit.Confirm, func(ctx context.Context) error { return a.change(ctx, a.remove) })
	if errors.Is(err, leaderelection.ErrNoElection) {
		return nil
	}
	return err
}

// change replaces the names in the value of the election node by those that f returns, given
// the names of the keys below it. It writes even if f changes nothing: an earlier write whose
// reply was lost expects an older revision of the node, and cannot take effect after this one.
func (a *asking) change(ctx context.Context, f func(names, present []string) ([]string, error)) error {
	for {
		read, err := a.client.Txn(ctx).Then(
			clientv3.OpGet(a.node),
			clientv3.OpGet(a.node+"/", clientv3.WithPrefix()),
		).Commit()
		if err != nil {
			return err
		}
		node := read.Responses[0].GetResponseRange().Kvs
		if len(node) == 0 {
			return &endError{errNoElection}
		}
		names, ok := resignation.Parse(node[0].Value)
		if !ok {
			return &endError{fmt.Errorf("%w: %q", errForeignData, node[0].Value[:min(len(node[0].Value), 40)])}
		}
		var present []string
		for _, kv := range read.Responses[1].GetResponseRange().Kvs {
			if isCandidate(a.node, kv) {
				present = append(present, path.Base(string(kv.Key)))
			}
		}
		after, err := f(names, present)
		if err != nil {
			return err
		}
		written, err := a.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(a.node), "=", node[0].ModRevision)).
			Then(clientv3.OpPut(a.node, string(resignation.Format(after)), clientv3.WithIgnoreLease())).
			Commit()
		a.written = a.written || err == nil && written.Succeeded || err != nil && !refused(err)
		if err != nil || written.Succeeded {
			return err
		}
	}
}

// gone waits until the candidate's key is gone.
func (a *asking) gone() error {
	for {
		var revision int64
		var exists bool
		if err := again(a.ctx, a.client, a.timeout/2, func(ctx context.Context) error {
			got, err := a.client.Get(ctx, a.id, clientv3.WithKeysOnly())
			if err == nil {
				revision, exists = got.Header.Revision, len(got.Kvs) > 0
			}
			return err
		}); err != nil || !exists {
			return err
		}
		key := deletion(a.ctx, a.client, a.id, revision+1)
		err := await(a.ctx, a.client, key, nil)
		key.end()
		if err != nil {
			return err
		}
	}
}

// ResignRequested returns a channel that is closed when a client requests this candidate's
// resignation with [AskToResign]. The request does nothing else: a leader should stop its
// work and then call Resign. The channel is not closed when the candidacy ends, so callers
// should also wait until the candidacy is over.
//
// After the first call, the candidate watches the value of the election node. A request that
// was made before the call is noticed as well. A candidate that never calls ResignRequested
// does not notice requests.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = make(chan struct{})
		e.listens <- struct{}{} // once
	}
	return e.asked
}

// listener returns the channel of ResignRequested if a request is still to come, or nil.
func (e *Election) listener() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil || isClosed(e.asked) {
		return nil
	}
	return e.asked
}

// checkRequests reports a request to resign that the view contains, and watches for the next.
func (s *stay) checkRequests(v *view) {
	asked := s.listener()
	if asked == nil {
		return
	}
	if names, _ := resignation.Parse(v.data); slices.Contains(names, path.Base(s.key)) {
		close(asked)
		s.requests.end()
		s.requests = nil
		return
	}
	if s.requests == nil {
		s.requests = newWatch(s.ctx, s.client, s.node, v.revision+1, clientv3.WithFilterDelete())
	}
}
