package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// State is the state of a registration's znode.
type State int

const (
	// Pending means that the znode does not exist or does not have its newest content, and
	// is being created or updated. Cause is the reason.
	Pending State = iota
	// Registered means that the znode exists and has its newest content.
	Registered
	// Unsure means that the connection is down. The znode exists until the session expires,
	// and is checked when the connection is established again.
	Unsure
)

// Status is the status of a registration.
type Status struct {
	// State is the state of the znode.
	State State
	// Cause is the reason in the state Pending, or nil: [recipes.ErrTaken] or an error of ZooKeeper
	// such as [recipes.ErrPermission]. The operation is retried.
	Cause error
	// Err is set only in the last element: [recipes.ErrConnClosed] if the connection was closed.
	// After Close it is nil.
	Err error
}

// newStatus converts the state of the znode to a Status.
func newStatus(s ephemeral.State) Status {
	var taken *ephemeral.TakenError
	switch {
	case s.Ended:
		return Status{State: Pending, Err: s.Err}
	case errors.As(s.Err, &taken):
		return Status{State: Pending, Cause: fmt.Errorf("%w: %w", recipes.ErrTaken, taken)}
	case errors.Is(s.Err, connection.ErrDeleted), errors.Is(s.Err, connection.ErrSessionExpired):
		return Status{State: Pending} // the registration is creating the znode again
	case s.Err != nil || !s.Present:
		return Status{State: Pending, Cause: s.Err}
	case s.Unsure:
		return Status{State: Unsure}
	}
	return Status{State: Registered}
}

// Registration maintains the znode of an instance until Close. Its methods may be called
// from any goroutine.
type Registration struct {
	setup  *recipe.Setup
	path   string
	keeper *ephemeral.Keeper
	status chan Status

	mu       sync.Mutex
	instance Instance
}

// Register creates the znode of the instance and maintains it. It blocks until the znode
// exists. While a znode of another session or another registration of this process exists
// at its path, Register waits until the context is done, and then returns an error that
// also wraps [recipes.ErrTaken]. A Static or Permanent instance replaces the content of an existing
// persistent znode. If Register fails, the znode is removed, in the background if that
// takes longer than the context lasts.
func (d *Discovery) Register(ctx context.Context, i Instance) (*Registration, error) {
	if i.ID == "" {
		i.ID = connection.RandomUUID()
	}
	if i.Registered == 0 {
		i.Registered = time.Now().UnixMilli()
	}
	if i.Type == "" {
		i.Type = Dynamic
	}
	if err := i.validate(); err != nil {
		return nil, err
	}
	node := path.Join(d.setup.Path, i.Name, i.ID)
	data, err := encodeInstance(d.setup, node, i)
	if err != nil {
		return nil, err
	}
	r := newRegistration(d, node, i, data)
	err = r.keeper.AwaitWritten(ctx, 1)
	if err == nil {
		return r, nil
	}
	if ctx.Err() != nil {
		if is := newStatus(r.keeper.State()); is.Cause != nil {
			err = fmt.Errorf("%w (%w)", err, is.Cause)
		}
	}
	_ = r.keeper.Close(ctx, recipes.ErrClosed)
	return nil, d.setup.Fail("register", node, err)
}

// encodeInstance returns the data of the znode node, or an error if servers do not accept data of that size.
func encodeInstance(s *recipe.Setup, node string, i Instance) ([]byte, error) {
	data, err := encode(i)
	if err == nil {
		err = ephemeral.CheckSize(node, data, s.ACL)
	}
	return data, err
}

func newRegistration(d *Discovery, node string, i Instance, data []byte) *Registration {
	r := &Registration{setup: d.setup, path: node, status: make(chan Status, 1), instance: i}
	report := func(e event.Event) {
		e.Path = path.Dir(node)
		d.setup.Report("discovery", e)
	}
	r.keeper = ephemeral.Keep(d.setup, ephemeral.Config{Path: node, Data: data, Static: i.Type != Dynamic, Retry: true, Events: report, Report: func(s ephemeral.State) {
		if is := newStatus(s); !errors.Is(is.Err, recipes.ErrClosed) {
			limit.SendNewest(r.status, is)
			if is.Cause != nil {
				d.setup.Log.Warn("registration failed", "path", node, "err", is.Cause)
			}
		}
		if s.Ended {
			close(r.status)
		}
	}})
	return r
}

// Path returns the path of the znode.
func (r *Registration) Path() string { return r.path }

// Instance returns the instance as it is or will be registered.
func (r *Registration) Instance() Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.instance
}

// Status returns a channel that delivers the newest status. A slow reader misses earlier
// ones. All calls return the same channel, which is closed when the registration has ended.
func (r *Registration) Status() <-chan Status { return r.status }

// Update replaces the registered instance. Name, ID and Type must not change. If Registered
// is 0, the previous value is kept. Update blocks until the znode has the new content. If
// the context is done first, or ZooKeeper rejects the change, Update returns that error,
// and the change is retried until the next Update. Update overwrites changes that other
// clients have made to the znode; otherwise they remain until the znode is created again.
func (r *Registration) Update(ctx context.Context, i Instance) error {
	was := r.Instance()
	if i.Registered == 0 {
		i.Registered = was.Registered
	}
	if i.Name != was.Name || i.ID != was.ID || i.Type != was.Type {
		return fmt.Errorf("%w: Update cannot change the name, ID or type from %s, %s, %s to %s, %s, %s", connection.ErrInvalid, was.Name, was.ID, was.Type, i.Name, i.ID, i.Type)
	}
	if err := i.validate(); err != nil {
		return err
	}
	data, err := encodeInstance(r.setup, r.path, i)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.instance = i
	number := r.keeper.Set(data)
	r.mu.Unlock()
	return r.setup.Fail("update", r.path, r.keeper.AwaitWritten(ctx, number))
}

// Close removes the znode, of whatever type, and returns nil when the removal is confirmed.
// It blocks for at most two seconds, and returns an error that wraps
// [recipes.ErrUnconfirmed] if ZooKeeper has not answered by then: the removal continues in the
// background until it is confirmed. If the connection was closed before that, the error also
// wraps [recipes.ErrConnClosed], and a Dynamic znode is removed when the session ends. A znode
// that another client has created at the path is not removed. Close may be called repeatedly.
func (r *Registration) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit.Confirm, limit.ErrConfirm)
	defer cancel()
	err := r.keeper.Close(ctx, recipes.ErrClosed)
	if err != nil {
		err = fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
	}
	return r.setup.Fail("unregister", r.path, err)
}
