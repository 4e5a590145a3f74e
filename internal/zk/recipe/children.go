package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// ChildConfig describes which children of a znode are read, as values of type T.
type ChildConfig[T any] struct {
	Path string
	// Parse returns the value of a child. found and err are the result of the read of the child. Parse is not
	// called for a child that was deleted. An error of Parse ends the read of all children.
	Parse func(name string, found watch.Found, err error) (T, error)
	// NamesOnly means that only the list of children is read. Parse is then called with an empty result.
	NamesOnly bool
	// Skip, if not nil, reports whether a child is ignored.
	Skip func(name string) bool
}

// maxConcurrent is the number of children that are read at the same time.
const maxConcurrent = 16

// ListChildren returns the values of the children by name, as the server of the connection knows them, or no values
// if the znode does not exist. If the list is larger than the connection accepts, the error is
// connection.ErrTooLarge.
func ListChildren[T any](ctx context.Context, conn *zk.Conn, c ChildConfig[T]) (map[string]T, error) {
	list, err := connection.ListExisting(ctx, conn, c.Path)
	if err != nil {
		return nil, err
	}
	children := map[string]T{}
	return children, c.read(ctx, c.filter(list), func(name string) (watch.Found, error) {
		data, stat, err := connection.ReadData(ctx, conn, path.Join(c.Path, name))
		return watch.Found{Data: data, Stat: stat}, err
	}, func(name string, value T, _ watch.Found) { children[name] = value })
}

// filter returns the names for which Skip does not return true.
func (c *ChildConfig[T]) filter(names []string) []string {
	if c.Skip == nil {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), c.Skip)
}

// read reads several children at the same time, and calls store for each child that exists, one call at a time.
func (c *ChildConfig[T]) read(ctx context.Context, names []string, read func(name string) (watch.Found, error), store func(name string, value T, found watch.Found)) error {
	type result struct {
		found watch.Found
		err   error
	}
	results, _ := connection.Each(names, maxConcurrent, func(_ int, name string) (r result, _ error) {
		if !c.NamesOnly {
			r.found, r.err = read(name)
		}
		return r, nil // no error, because one child must not end the read of the others
	})
	var failure error
	for i, r := range results {
		switch {
		case connection.IsCause(ctx, r.err):
			return r.err
		case errors.Is(r.err, zk.ErrNoNode):
			continue // the child was deleted after the listing
		}
		value, err := c.Parse(names[i], r.found, r.err)
		if err != nil {
			failure = fmt.Errorf("child %q: %w", names[i], err)
			continue
		}
		store(names[i], value, r.found)
	}
	return failure
}

// ChildReader follows the children of a znode with a watch on the list and a watch on each child. Only one
// goroutine may use a ChildReader, and must call Close.
type ChildReader[T any] struct {
	setup  *Setup
	config ChildConfig[T]
	sub    *connection.Subscription

	children map[string]*child[T]
	list     *watch.Watch // the watch on the list of children, or on the creation of the znode; nil if it has fired
	epoch    uint64       // the epoch of the connection before the newest Read
	// sync makes the next Read begin with a Sync. reset makes the next Read read everything and set all watches
	// again, because some watches may have been lost.
	sync, reset bool
	// doubtful is set if a watch may never fire. recheck receives the time at which everything is read again for
	// this reason.
	doubtful bool
	recheck  <-chan time.Time

	fired      chan struct{} // capacity 1; contains an element if the watch on a child may have fired
	stop       chan struct{}
	forwarders sync.WaitGroup // the goroutines that wait for the watches of children
}

// child is the state of a child when it was last read.
type child[T any] struct {
	value T
	owner int64        // the session of an ephemeral znode
	watch *watch.Watch // nil if the watch has fired
}

// NewChildReader returns a ChildReader. If latest is true, the first Read includes all changes that the servers had
// acknowledged before. Otherwise the first Read returns what the server of the connection knows.
func NewChildReader[T any](s *Setup, c ChildConfig[T], latest bool) *ChildReader[T] {
	return &ChildReader[T]{
		setup: s, config: c, sub: s.Subscribe(), children: map[string]*child[T]{}, sync: latest,
		fired: make(chan struct{}, 1), stop: make(chan struct{}),
	}
}

// Close ends the goroutines of the ChildReader. The watches remain in the pool of the connection.
func (r *ChildReader[T]) Close() {
	close(r.stop)
	r.forwarders.Wait()
	r.sub.Close()
}

// Read returns the values of the children by name, or no values if the znode does not exist. It reads only the
// children that have changed since the last Read. If the list is larger than the connection accepts, the error is
// connection.ErrTooLarge, and the caller may call Read again after a pause. After other errors the ChildReader
// cannot be used any more.
func (r *ChildReader[T]) Read(ctx context.Context) (map[string]T, error) {
	epoch := r.sub.State().Epoch
	all := r.reset || r.epoch != 0 && r.epoch != epoch
	r.epoch, r.reset = epoch, all
	if all || r.sync {
		if err := r.setup.Sync(ctx, r.config.Path); err != nil {
			return nil, err
		}
	}
	r.doubtful = r.doubtful && !all
	if all || r.list == nil {
		if err := r.readList(ctx); err != nil {
			if errors.Is(err, connection.ErrTooLarge) {
				// The reply has broken the connection, and the break may have lost watches.
				r.epoch, r.reset = r.sub.State().Epoch, true
			}
			return nil, err
		}
	}
	if err := r.readChildren(ctx, all); err != nil {
		return nil, err
	}
	switch {
	case !r.doubtful:
		r.recheck = nil
	case r.recheck == nil:
		r.recheck = time.After(connection.DoubtDelay(all))
	}
	r.sync, r.reset = false, false
	values := make(map[string]T, len(r.children))
	for name, c := range r.children {
		values[name] = c.value
	}
	return values, nil
}

// readList reads the list of children, and removes children that do not exist any more.
func (r *ChildReader[T]) readList(ctx context.Context) error {
	found, err := watch.Read(ctx, r.setup.Conn, r.query(r.config.Path, watch.ChildrenOrCreation))
	if err != nil {
		return err
	}
	r.list, r.doubtful = found.Watch, r.doubtful || found.Doubt
	listed := make(map[string]*child[T], len(found.Children))
	for _, name := range r.config.filter(found.Children) {
		listed[name] = r.children[name]
	}
	r.children = listed
	return nil
}

// readChildren reads all children if all is set, and otherwise the children that are new or have changed.
func (r *ChildReader[T]) readChildren(ctx context.Context, all bool) error {
	var names []string
	previous := map[string]*child[T]{}
	for name, c := range r.children {
		if all || c == nil || c.watch == nil && !r.config.NamesOnly {
			names = append(names, name)
			previous[name] = c
			delete(r.children, name) // the next list adds the child again if the child still exists
		}
	}
	return r.config.read(ctx, names, func(name string) (watch.Found, error) {
		return watch.Read(ctx, r.setup.Conn, r.query(path.Join(r.config.Path, name), watch.Data))
	}, func(name string, value T, found watch.Found) {
		c := &child[T]{value: value, watch: found.Watch}
		if found.Stat != nil {
			c.owner = found.Stat.EphemeralOwner
		}
		if was := previous[name]; c.watch != nil && (was == nil || was.watch != c.watch) {
			r.forward(c.watch)
		}
		r.children[name], r.doubtful = c, r.doubtful || found.Doubt
	})
}

func (r *ChildReader[T]) query(node string, what watch.What) watch.Query {
	return watch.Query{Path: node, What: what, Epoch: r.epoch, Reset: r.reset}
}

// forward wakes Wait when the watch w on a child fires.
func (r *ChildReader[T]) forward(w *watch.Watch) {
	r.forwarders.Go(func() {
		select {
		case event := <-w.C():
			w.Take(event)
			connection.Signal(r.fired)
		case <-r.stop:
		}
	})
}

// Wait blocks until there may be a change for the next Read, or retry contains an element. The error is the cause
// of the context or connection.ErrConnClosed.
func (r *ChildReader[T]) Wait(ctx context.Context, retry <-chan time.Time) error {
	for changed := false; !changed; {
		switch state := r.sub.State(); {
		case state.Closed:
			return connection.ErrConnClosed
		case state.Up && state.Epoch != r.epoch:
			return nil // Read detects that the connection has broken
		}
		select {
		case event := <-r.list.C():
			r.list.Take(event)
		case <-r.fired:
		case <-r.sub.Changed(): // the channel of a watch that was lost receives nothing
		case <-r.recheck:
			r.recheck, r.reset = nil, true
			return nil
		case <-retry:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var err error
		if changed, err = r.recordFired(); err != nil {
			return err
		}
	}
	if r.mayBeClosing() {
		connection.AwaitClosing(ctx, r.setup.Conn, connection.ClosingTime)
	}
	_, err := r.recordFired() // record all changes that were made together, so that Read reads them together
	return err
}

// recordFired removes all watches that have fired or were lost, so that Read reads their znodes again, and reports
// whether there were any. It returns connection.ErrConnClosed if the connection was closed at the same time.
func (r *ChildReader[T]) recordFired() (changed bool, err error) {
	fired := func(w *watch.Watch) bool {
		if !w.Fired() {
			return false
		}
		if errors.Is(w.Take(zk.Event{}).Err, zk.ErrClosing) {
			err = connection.ErrConnClosed
		}
		return true
	}
	if fired(r.list) {
		r.list, changed = nil, true
	}
	for _, c := range r.children {
		if fired(c.watch) {
			c.watch, changed = nil, true
		}
	}
	return changed, err
}

// mayBeClosing reports whether the owner may be closing the connection: the servers have deleted a child of the
// current session, which is the first effect of Close.
func (r *ChildReader[T]) mayBeClosing() bool {
	if r.config.NamesOnly {
		return r.list == nil
	}
	session := r.setup.Conn.SessionID()
	for _, c := range r.children {
		if c.owner == session && session != 0 && (c.watch == nil || r.list == nil) {
			return true
		}
	}
	return false
}
