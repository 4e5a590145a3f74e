package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// State is the state of a registration's znode.
type State int

const (
	// Pending means that the znode does not exist or does not have its newest content, and
	// is being created or updated. Err is the reason.
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
	// Err is, in the state Pending, [ErrTaken] or an error of ZooKeeper such as
	// [recipes.ErrPermission]; the operation is retried. The last status has
	// [recipes.ErrConnClosed] if the connection was closed.
	Err error
}

// Registration maintains the znode of an instance until Close. Its methods may be called
// from any goroutine.
type Registration struct {
	at     *recipe.Setup
	path   string
	sub    *session.Subscription
	ctx    context.Context // done when it is to be removed
	stop   context.CancelFunc
	status chan Status
	wake   chan struct{} // capacity 1: there is another content to be written
	over   chan struct{}
	err    error // before over: why it is not certain that nothing is left

	mu      sync.Mutex
	want    Instance
	data    []byte // want's
	version int    // of want, from 1
	written int    // the version that is in the znode for certain
	refused error  // why version is not written
	news    chan struct{}

	place place // the goroutine's
}

// Register creates the znode of the instance and maintains it. It blocks until the znode
// exists. While a znode of another session or another registration of this process exists
// at its path, Register waits until the context is done, and then returns an error that
// also wraps [ErrTaken]. A Static or Permanent instance replaces the content of an existing
// persistent znode. If Register fails, the znode is removed, in the background if that
// takes longer than the context lasts.
func (d *Discovery) Register(ctx context.Context, i Instance) (*Registration, error) {
	if i.ID == "" {
		i.ID = newID()
	}
	if i.Registered == 0 {
		i.Registered = time.Now().UnixMilli()
	}
	if i.Type == "" {
		i.Type = Dynamic
	}
	if err := i.check(); err != nil {
		return nil, err
	}
	node := path.Join(d.at.Path, i.Name, i.ID)
	data, err := content(node, i)
	if err != nil {
		return nil, err
	}
	if err := claim(ctx, d.at.Conn, node); err != nil {
		return nil, recipe.Fail("register", node, err)
	}
	r := newRegistration(d, node, i, data)
	go r.keep()
	err = r.confirmed(ctx, 1)
	if err == nil {
		return r, nil
	}
	r.stop()
	if errors.Is(err, context.Cause(ctx)) {
		if r.mu.Lock(); r.refused != nil {
			err = fmt.Errorf("%w (%w)", err, r.refused)
		}
		r.mu.Unlock()
		return nil, recipe.Fail("register", node, err)
	}
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	return nil, recipe.Fail("register", node, err)
}

// maxData bounds what a znode's content and path take: a server would close the
// connection at a request that is longer than a megabyte, each time that it is sent.
const maxData = 0xfffff - 4096

// content is that of an instance's znode.
func content(node string, i Instance) ([]byte, error) {
	data, err := encode(i)
	if err == nil && len(node)+len(data) > maxData {
		err = fmt.Errorf("%w: the instance has %d bytes, more than a server accepts", zkerror.ErrInvalidOption, len(data))
	}
	return data, err
}

func newRegistration(d *Discovery, node string, i Instance, data []byte) *Registration {
	ctx, stop := context.WithCancel(context.Background())
	return &Registration{
		at: d.at, path: node, sub: d.at.Subscribe(),
		ctx: ctx, stop: stop, status: make(chan Status, 1), wake: make(chan struct{}, 1), over: make(chan struct{}),
		want: i, data: data, version: 1, news: make(chan struct{}),
		place: place{lasting: i.Type != Dynamic, sessions: map[int64]bool{}},
	}
}

// Path returns the path of the znode.
func (r *Registration) Path() string { return r.path }

// Instance returns the instance as it is or will be registered.
func (r *Registration) Instance() Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want
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
		return fmt.Errorf("%w: name, ID or type cannot be updated: %s, %s, %s to %s, %s, %s", zkerror.ErrInvalidOption, was.Name, was.ID, was.Type, i.Name, i.ID, i.Type)
	}
	if err := i.check(); err != nil {
		return err
	}
	data, err := content(r.path, i)
	if err != nil {
		return err
	}
	if r.ctx.Err() != nil {
		return ErrClosed
	}
	r.mu.Lock()
	r.version++
	r.want, r.data, r.refused = i, data, nil
	version := r.version
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return recipe.Fail("update", r.path, r.confirmed(ctx, version))
}

// confirmed waits until version is written, or refused for any reason but that the
// place is taken, which passes.
func (r *Registration) confirmed(ctx context.Context, version int) error {
	for {
		r.mu.Lock()
		written, refused, news := r.written, r.refused, r.news
		r.mu.Unlock()
		switch {
		case written >= version:
			return nil
		case refused != nil && !errors.Is(refused, ErrTaken):
			return refused
		}
		select {
		case <-news:
		case <-r.over:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close removes the znode, of whatever type, and returns nil when the removal is confirmed.
// It may be called repeatedly. If the context is done first, Close returns its cause, and
// the removal continues until it is confirmed. If the connection was closed before that,
// the error is [recipes.ErrConnClosed], and a Dynamic znode is removed when the session
// ends. A znode that another client has created at the path is not removed.
func (r *Registration) Close(ctx context.Context) error {
	r.stop()
	select {
	case <-r.over:
		return recipe.Fail("unregister", r.path, r.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wanted is the content to be written, and its version.
func (r *Registration) wanted() ([]byte, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data, r.version
}

// noted tells those who wait for a version what has become of it.
func (r *Registration) noted(written int, refused error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written, r.refused = written, refused
	close(r.news)
	r.news = make(chan struct{})
}

// claims are the registrations of this process: two of one place on one connection
// could not be told apart by the session.
var claims = struct {
	sync.Mutex
	over map[claimed]chan struct{}
}{over: map[claimed]chan struct{}{}}

type claimed struct {
	conn *zk.Conn
	path string
}

// claim waits until no other registration of this process has the place.
func claim(ctx context.Context, conn *zk.Conn, path string) error {
	for {
		claims.Lock()
		over, taken := claims.over[claimed{conn, path}]
		if !taken {
			claims.over[claimed{conn, path}] = make(chan struct{})
		}
		claims.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), ErrTaken)
		}
	}
}

// disclaim gives the place back.
func disclaim(conn *zk.Conn, path string) {
	claims.Lock()
	defer claims.Unlock()
	close(claims.over[claimed{conn, path}])
	delete(claims.over, claimed{conn, path})
}
