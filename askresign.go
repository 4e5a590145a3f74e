package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/resignation"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// A program requests the candidate of another program to resign, so that the other program can
// first end its work. If it deleted the candidate's znode instead, the leadership would end
// before the leader's work has ended.
//
// The request is in the data of the election node, which candidates of other libraries do not
// read. It is not in the candidate's znode: if the data of that znode changes, Curator's
// LeaderLatch behind it loses its watch.

// AskToResign requests that the candidate with the given ID resigns from the election at
// node, and blocks until the candidate's znode does not exist any more. It is meant for
// programs other than the candidate's. A candidate receives the request only if its program
// calls [Election.ResignRequested]; package elector does, and stops the leader's work
// before it resigns. The request does not affect other candidates.
//
// AskToResign returns nil as soon as the znode does not exist, for whatever reason. Then
// another candidate, if there is one, is or is about to become the leader. Use
// [WithContext] to bound the wait. When that context is done, AskToResign withdraws the
// request if it was made, and returns an error that wraps the context's cause. If ZooKeeper
// does not confirm the withdrawal within 1.5 s, the error includes the reason, and the
// withdrawal continues in the background until the connection answers or is closed.
//
// Errors: [ErrNoCandidate] if the candidate does not exist, [ErrNoElection],
// [ErrForeignData] if the election node contains data of another application,
// [ErrPermission] if the connection is not allowed to write that data, [ErrInvalidOption]
// if id is not the ID of a candidate of this election, [ErrInvalidPath] and [ErrNilConn].
// After these errors nothing was changed. [ErrConnClosed] can also be returned after the
// request was made.
func AskToResign(conn *zk.Conn, node, id string, opts ...Option) error {
	o, err := newOptions(conn, opts)
	if err != nil {
		return err
	}
	if err := checkNode(conn, node); err != nil {
		return err
	}
	name := path.Base(id)
	if contenders, _, _ := contender.Order([]string{name}, tombstone); path.Join(node, name) != id || len(contenders) == 0 {
		return fmt.Errorf("%w: %q is not the ID of a candidate in %s", ErrInvalidOption, id, node)
	}
	a := &asking{options: o, conn: conn, node: node, name: name}
	if err := a.ask(); err != nil {
		return fmt.Errorf("ask %s to resign: %w", id, refine(err))
	}
	return nil
}

// asking is one call of AskToResign.
type asking struct {
	*options
	conn       *zk.Conn
	node, name string

	mu      sync.Mutex
	gaveUp  bool // no write may be sent any more
	written bool // a write was sent
}

func (a *asking) ask() error {
	answered := make(chan struct{})
	_, err := request.Do(a.ctx, func() (struct{}, error) {
		defer close(answered)
		return struct{}{}, a.change(a.add, a.maySend)
	})
	switch {
	case err == nil:
		err = a.gone()
	case errors.Is(err, errGaveUp):
		err = context.Cause(a.ctx)
	}
	if a.giveUp() {
		if failed := a.withdraw(answered); err != nil && failed != nil {
			err = fmt.Errorf("%w; the request may not be withdrawn: %w", err, failed)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = ErrNoElection
	}
	return err
}

// errGaveUp ends change after the end of the context.
var errGaveUp = errors.New("the call was cancelled")

// maySend reports whether a write may be sent, and notes that one is.
func (a *asking) maySend() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gaveUp {
		return false
	}
	a.written = true
	return true
}

// wrote reports whether a write was sent.
func (a *asking) wrote() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written
}

// giveUp makes maySend return false from now on, and reports whether a write was sent.
func (a *asking) giveUp() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gaveUp = true
	return a.written
}

// withdraw removes the name from the requests, after the write that has added it was
// answered. It returns at the latest after limit.Confirm; the removal then continues
// until the connection answers or is closed.
func (a *asking) withdraw(answered <-chan struct{}) error {
	limit, cancel := context.WithTimeout(context.Background(), limit.Confirm)
	defer cancel()
	_, err := request.Do(limit, func() (struct{}, error) {
		<-answered
		return struct{}{}, a.change(a.remove, func() bool { return true })
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (a *asking) add(names, present []string) ([]string, error) {
	switch {
	case slices.Contains(present, a.name):
	case a.wrote(): // an earlier attempt whose reply was lost has been obeyed
		return names, nil
	default:
		return nil, ErrNoCandidate
	}
	return resignation.Add(names, present, a.name), nil
}

func (a *asking) remove(names, _ []string) ([]string, error) {
	return resignation.Remove(names, a.name), nil
}

// change replaces the names in the election node's data by those that f returns, given
// the node's children. It sends no write if maySend returns false. It blocks until the
// connection has answered.
func (a *asking) change(f func(names, present []string) ([]string, error), maySend func() bool) error {
	// A repeated call reads the result of the earlier ones.
	return request.Retry(context.Background(), a.conn, func() error {
		for {
			data, stat, err := request.Get(a.conn, a.node)
			if err != nil {
				return err
			}
			names, ok := resignation.Parse(data)
			if !ok {
				return fmt.Errorf("%w: %q", ErrForeignData, data[:min(len(data), 40)])
			}
			present, _, err := request.Children(a.conn, a.node)
			if err != nil {
				return err
			}
			after, err := f(names, present)
			if err != nil || slices.Equal(names, after) {
				return err
			}
			if !maySend() {
				return errGaveUp // not the cause of the context: a deadline counts as transient
			}
			if _, err = a.conn.Set(a.node, resignation.Format(after), stat.Version); !errors.Is(err, zk.ErrBadVersion) {
				return err
			}
		}
	})
}

// gone waits until the candidate's znode is gone.
func (a *asking) gone() error {
	sub := session.Subscribe(a.conn, a.timeout)
	defer sub.Close()
	znode := watch.NewReader(a.conn, sub, path.Join(a.node, a.name), watch.Data)
	for {
		if _, err := znode.Read(a.ctx); err != nil {
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
			return err
		}
		if _, err := znode.Wait(a.ctx, nil); err != nil {
			return err
		}
	}
}

// ResignRequested returns a channel that is closed when a client requests this candidate's
// resignation with [AskToResign]. The request does nothing else: a leader should stop its
// work and then call Resign. The channel is not closed when the candidacy ends, so callers
// should also wait until the candidacy is over.
//
// The first call starts a goroutine and sets a watch on the data of the election node,
// until the candidacy is over. A request that was made before the call is noticed as well.
// A candidate that never calls ResignRequested does not notice requests. If the candidate
// is not allowed to read the election node, requests are not noticed and a warning is
// logged.
func (e *Election) ResignRequested() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requested == nil {
		e.requested = make(chan struct{})
		e.candidacy.start(func(ctx context.Context) { e.listen(ctx, e.requested) })
	}
	return e.requested
}

// listen ends with the candidacy, or when the candidate was asked.
func (e *Election) listen(ctx context.Context, asked chan<- struct{}) {
	sub := session.Subscribe(e.conn, e.options.timeout)
	defer sub.Close()
	requests := watch.NewReader(e.conn, sub, e.node, watch.Data)
	for {
		found, err := requests.Read(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zkerror.ErrConnClosed) {
				e.log.Warn("cannot receive resign requests", "err", refine(err))
			}
			return
		}
		names, _ := resignation.Parse(found.Data)
		for changed := false; !changed; {
			// The ID is known after the znode was created, and changes with the session.
			if id := e.ID(); id != "" && slices.Contains(names, path.Base(id)) {
				close(asked)
				return
			}
			if changed, err = requests.Wait(ctx, e.renamed); err != nil {
				return
			}
		}
	}
}
