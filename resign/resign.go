// Package resign requests candidates of other programs to resign, for instance to move the leader
// away from a host. The other program can stop the work of the leader first. If its znode was
// deleted instead, the leadership would end before the work.
//
// A candidate receives requests if its program calls Election.ResignRequested of package
// leaderelection; package elector does.
//
// [Transfer] makes a named candidate the leader, and [Queue.Prefer] the candidate with the highest priority.
package resign

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

var (
	// ErrNoCandidate is returned if the election has no candidate with the given ID.
	ErrNoCandidate = errors.New("no such candidate")
	// ErrForeignData is returned if the election node contains data of another application,
	// which this library does not overwrite. Move that data to another znode.
	ErrForeignData = errors.New("election node contains data of another application")
)

// Request requests that the candidate with the given ID resigns from the election at node, and
// blocks until the candidate's znode does not exist any more. The request does not affect other
// candidates. A candidate that does not receive requests ignores it.
//
// Request returns nil as soon as the znode does not exist, for whatever reason. Then another
// candidate, if there is one, is or is about to become the leader. When ctx is done, Request
// withdraws the request if it was made, and returns an error that wraps the cause of ctx. The
// candidate may have received the request. If ZooKeeper does not confirm the withdrawal within
// 1.5 s, the error includes the reason, and the withdrawal continues in the background until the
// connection answers or is closed.
//
// Errors of this package: [ErrNoCandidate] and [ErrForeignData]. Errors of package leaderelection:
// ErrNoElection, ErrPermission if the connection is not permitted to write the data of the election
// node, ErrInvalid if conn is nil, node is not valid, or id is not the ID of a candidate of this
// election. After these errors nothing was changed. ErrConnClosed can also be returned after the
// request was made, and so can ErrForeignData and ErrPermission if another program has then changed
// the data or the ACL of the election node.
func Request(ctx context.Context, conn *zk.Conn, node, id string) error {
	if conn == nil {
		return connection.ErrNilConn
	}
	if err := connection.CheckPath(node); err != nil {
		return err
	}
	name := path.Base(id)
	if candidates, _, _ := contender.Order([]string{name}, ""); path.Join(node, name) != id || len(candidates) == 0 {
		return fmt.Errorf("%w: %q is not the ID of a candidate in %s", leaderelection.ErrInvalid, id, node)
	}
	r := &resignRequest{conn: conn, node: node, name: name, changing: make(chan struct{}, 1)}
	err := r.send(ctx)
	if connection.IsNoNode(ctx, err) {
		err = leaderelection.ErrNoElection
	}
	if err != nil {
		return fmt.Errorf("request %s to resign: %w", id, connection.Explain(conn, connection.Refine(conn, err)))
	}
	return nil
}

// resignRequest is one call of Request. The requests to all candidates of an election are the data of the
// election node, which candidates of other libraries do not read. They are not the data of the candidates'
// znodes: a candidate of Curator loses its watch when the data of its predecessor changes.
type resignRequest struct {
	conn       *zk.Conn
	node, name string
	// changing has capacity 1, and contains an element while changeRequests runs.
	changing chan struct{}

	mu       sync.Mutex
	canceled bool // cancel was called, so no further write may be sent
	written  bool // a write was sent
}

// send adds the request, waits until the candidate's znode does not exist, and withdraws the request if it
// may still exist.
func (r *resignRequest) send(ctx context.Context) error {
	err := r.addRequest(ctx)
	if err == nil {
		err = r.awaitDeletion(ctx)
	}
	if r.cancel() {
		if failed := r.withdraw(ctx); err != nil && failed != nil {
			err = fmt.Errorf("%w; the request may not be withdrawn: %w", err, failed)
		}
	}
	return err
}

// addRequest adds the request unless it exists. If ctx is done, addRequest returns, and the
// attempt continues in the background until the connection answers or cancel is called.
func (r *resignRequest) addRequest(ctx context.Context) error {
	_, err := connection.Do(ctx, func() (struct{}, error) {
		return struct{}{}, r.changeRequests(r.add, r.startWrite)
	})
	return err
}

// errCanceled ends changeRequests after cancel was called. It replaces the cause of the context, which can
// be a deadline: connection.Retry would take a deadline for a transient error.
var errCanceled = errors.New("the call was canceled")

// startWrite must be called before a write is sent, and records it. It returns false if cancel was called: then no
// write may be sent.
func (r *resignRequest) startWrite() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceled {
		return false
	}
	r.written = true
	return true
}

// wasWritten reports whether a write was sent.
func (r *resignRequest) wasWritten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written
}

// cancel prevents further writes, and reports whether a write was sent.
func (r *resignRequest) cancel() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canceled = true
	return r.written
}

// withdraw removes the request, after the write that has added it was answered. ctx may be done. withdraw
// returns after limit.Confirm at the latest; the removal then continues until the connection answers or is
// closed.
func (r *resignRequest) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit.Confirm)
	defer cancel()
	_, err := connection.Do(ctx, func() (struct{}, error) {
		return struct{}{}, r.changeRequests(r.remove, func() bool { return true })
	})
	return connection.IgnoreNoNode(err)
}

// add returns names, the candidates that are requested to resign, with the name of the candidate, if the
// candidate is among present.
func (r *resignRequest) add(names, present []string) ([]string, error) {
	switch {
	case slices.Contains(present, r.name):
		return record.AddRequests(names, present, r.name), nil
	case r.wasWritten():
		return names, nil // an earlier attempt was applied, its reply was lost, and the candidate has resigned
	}
	return nil, ErrNoCandidate
}

// remove returns names without the name of the candidate.
func (r *resignRequest) remove(names, _ []string) ([]string, error) {
	return record.RemoveRequests(names, r.name), nil
}

// changeRequests replaces the names in the data of the election node by those that change returns,
// given the children of the node. It sends no write if startWrite returns false. It blocks until the
// connection has answered, also to the requests of an earlier call that still runs.
func (r *resignRequest) changeRequests(change func(names, present []string) ([]string, error), startWrite func() bool) error {
	r.changing <- struct{}{}
	defer func() { <-r.changing }()
	// Each attempt reads the data again, so it sees the result of earlier attempts.
	return connection.Retry(context.Background(), r.conn, func() error {
		for {
			data, stat, err := connection.Get(r.conn, r.node)
			if err != nil {
				return err
			}
			names, ok := record.ParseRequests(data)
			if !ok {
				return fmt.Errorf("%w: %q", ErrForeignData, data[:min(len(data), 40)])
			}
			present, _, err := connection.Children(r.conn, r.node)
			if err != nil {
				return err
			}
			changed, err := change(names, present)
			if err != nil || slices.Equal(names, changed) {
				return err
			}
			data = record.FormatRequests(changed)
			if _, err := txn.Size([]any{&zk.SetDataRequest{Path: r.node, Data: data}}); err != nil {
				return fmt.Errorf("%w: store %d requests to resign: %w", leaderelection.ErrInvalid, len(changed), err)
			}
			if !startWrite() {
				return errCanceled
			}
			if _, err = r.conn.Set(r.node, data, stat.Version); !errors.Is(err, zk.ErrBadVersion) {
				return err
			}
		}
	})
}

// awaitDeletion waits until the candidate's znode does not exist. It adds the request again if it is removed:
// all requests to a candidate are one entry in the data, and another call may have withdrawn its request to
// the same candidate.
func (r *resignRequest) awaitDeletion(ctx context.Context) error {
	sub := connection.Subscribe(r.conn, 0)
	defer sub.Close()
	candidate := watch.NewReader(r.conn, sub, path.Join(r.node, r.name), watch.Data)
	requests := watch.NewReader(r.conn, sub, r.node, watch.Data)
	for {
		_, err := candidate.Read(ctx)
		if err == nil {
			err = r.keepRequest(ctx, requests)
		}
		if err == nil {
			_, err = candidate.WaitEither(ctx, requests, nil)
		}
		switch {
		case connection.IsCause(ctx, err):
			return err
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, ErrNoCandidate):
			return nil
		case err != nil:
			return err
		}
	}
}

// keepRequest reads the data of the election node, and adds the request if it is missing.
func (r *resignRequest) keepRequest(ctx context.Context, requests *watch.Reader) error {
	found, err := requests.Read(ctx)
	if err != nil {
		return err
	}
	if names, _ := record.ParseRequests(found.Data); slices.Contains(names, r.name) {
		return nil
	}
	return r.addRequest(ctx)
}
