package group

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Persistent maintains an ephemeral znode until it is closed: if the znode is removed,
// because the session has expired or another client has deleted it, it is created again.
// Its methods may be called from any goroutine. It must be closed.
type Persistent struct {
	setup  *recipe.Setup
	path   string
	keeper *ephemeral.Keeper
	status chan Presence // contains the newest state until it is received; capacity 1
}

// Presence reports whether a znode is present.
type Presence struct {
	// Present reports whether the znode exists and belongs to the current session.
	Present bool
	// Token is the znode's creation zxid, which increases each time the znode is created
	// again, and Session is the ID of its session. Both are 0 if the znode is absent,
	// except that they describe the znode of another client while Cause is [recipes.ErrTaken].
	Token, Session int64
	// Cause is the reason why the znode is absent while it is being created again:
	// [recipes.ErrTaken], [recipes.ErrSessionExpired], [recipes.ErrDeleted], or an error of
	// ZooKeeper. It is nil before the first attempt has ended, and if the znode is present.
	Cause error
	// Err is set only in the last element, and is the reason why the znode is not maintained any
	// more: [recipes.ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission] or another error
	// of ZooKeeper.
	Err error
}

// newPresence converts the state of the znode to a Presence. A znode counts as present while the connection is
// down.
func newPresence(s ephemeral.State) Presence {
	p := Presence{Present: s.Present, Token: s.Czxid, Session: s.Owner, Cause: s.Err}
	var taken *ephemeral.TakenError
	switch {
	case s.Ended:
		p.Cause, p.Err = nil, s.Err
	case errors.As(s.Err, &taken):
		p.Cause = fmt.Errorf("%w: %w", recipes.ErrTaken, taken)
	}
	return p
}

// NewPersistent creates and maintains an ephemeral znode with data at path. Missing parents are
// created as containers. NewPersistent does not wait for ZooKeeper; see
// [Persistent.Await]. Errors: [recipes.ErrInvalid].
func NewPersistent(conn *zk.Conn, path string, data []byte, opts ...Option) (*Persistent, error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyGroup)
	if err != nil {
		return nil, err
	}
	return newPersistent(s, path, data)
}

func newPersistent(s *recipe.Setup, path string, data []byte) (*Persistent, error) {
	if err := ephemeral.CheckSize(path, data, s.ACL); err != nil {
		return nil, err
	}
	p := &Persistent{setup: s, path: path, status: make(chan Presence, 1)}
	var reported Presence
	report := func(e event.Event) { s.Report("group", e) }
	p.keeper = ephemeral.Keep(s, ephemeral.Config{Path: path, Data: slices.Clone(data), Events: report, Report: func(s ephemeral.State) {
		if is := newPresence(s); fmt.Sprint(is) != fmt.Sprint(reported) {
			reported = is
			limit.SendNewest(p.status, is)
		}
		if s.Ended {
			close(p.status)
		}
	}})
	return p, nil
}

// Await blocks until the znode is present, and returns nil then. It returns the context's
// cause if the context is done first, and the error of Err if the Persistent has ended.
func (p *Persistent) Await(ctx context.Context) error {
	return p.setup.Fail("keep", p.path, p.keeper.AwaitPresent(ctx))
}

// Status returns a channel that delivers the newest state. A slow reader misses earlier
// states. All calls return the same channel, which is closed after the last state. The
// state is the last one that ZooKeeper has reported, and does not change while the
// connection is down.
func (p *Persistent) Status() <-chan Presence { return p.status }

// Current returns the newest state of the znode, and does not wait for ZooKeeper.
func (p *Persistent) Current() Presence { return newPresence(p.keeper.State()) }

// Done returns a channel that is closed when the znode is not maintained any more.
func (p *Persistent) Done() <-chan struct{} { return p.keeper.Done() }

// Err returns nil while the znode is maintained, and afterwards the reason why it is not:
// [recipes.ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission] or another error of
// ZooKeeper.
func (p *Persistent) Err() error { return p.keeper.Err() }

// Set changes the data of the znode, now and whenever it is created again. It blocks until
// the znode has this data or the data of a later Set, and returns nil then. If the context
// is done first, Set returns its cause, and the change is still made. Other errors:
// [recipes.ErrInvalid] if the data is larger than a server accepts,
// [recipes.ErrPermission], and the error of Err.
func (p *Persistent) Set(ctx context.Context, data []byte) error {
	if err := ephemeral.CheckSize(p.path, data, p.setup.ACL); err != nil {
		return err
	}
	return p.setup.Fail("set", p.path, p.keeper.AwaitWritten(ctx, p.keeper.Set(slices.Clone(data))))
}

// Close stops maintaining the znode and removes it. It returns nil when the removal is
// confirmed. It blocks for at most two seconds, and returns an error that wraps
// [recipes.ErrUnconfirmed] if ZooKeeper has not answered by then, or if the connection is
// closed. The removal then continues in the background until it is confirmed, the session
// ends or the connection is closed. Close may be called repeatedly.
func (p *Persistent) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit.Confirm, limit.ErrConfirm)
	defer cancel()
	if err := p.keeper.Close(ctx, recipes.ErrClosed); err != nil {
		return p.setup.Fail("close", p.path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
	}
	return nil
}
