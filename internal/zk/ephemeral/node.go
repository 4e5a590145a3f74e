// Package ephemeral puts one ephemeral znode at a path and holds it: the znode is
// proven to be this session's, its end is told, and it is removed for certain. Those
// who stand in line have internal/zk/line for that.
package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// Node is an ephemeral znode of the session in which it was created. Its goroutine
// runs until it is removed or has gone. Methods may be called from any goroutine.
type Node struct {
	*recipe.Setup
	path  string
	czxid int64
	owner int64
	// perhaps: a create may have left the znode, in the session owner, which is 0 where
	// there was none when the create began, or in the one that came next.
	perhaps bool
	grant   *grant.Grant
	// lasting: nothing is granted by it, so that its session need not be proven to live.
	lasting bool
	epoch   uint64 // of the connection, when the znode was read

	sub  *session.Subscription
	stop context.CancelCauseFunc
	over chan struct{} // closed when the goroutine has ended
	err  error         // before over: why it is not certain that nothing is left
}

// Taken says that a znode was there already. Whoever finds one of an earlier session
// of their own must not take it for theirs: it goes with that session (KAFKA-1387).
type Taken struct {
	Path  string
	Owner int64 // session
	Czxid int64
}

func (t *Taken) Error() string {
	return fmt.Sprintf("%s exists, of session %#x", t.Path, t.Owner)
}

// Create creates the znode at path, and its parents where they are missing, the
// nearest as a container. It returns once the znode is there and proven to be this
// session's, or *Taken, or what ended it: the context's cause, or an error as
// zkerror.Refine takes it. What was created by then is removed, in the background
// where that takes longer than the context lasts.
func Create(ctx context.Context, s *recipe.Setup, path string, data []byte) (*Node, error) {
	n, created := start(ctx, s, path, data, false)
	select {
	case err := <-created:
		if err != nil {
			return nil, err
		}
		return n, nil
	case <-ctx.Done():
		n.stop(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// Keep is Create for a znode that others look at and by which nothing is granted. It
// is kept for as long as it is there, also while ZooKeeper does not answer, and costs
// no checks: its grant has no deadline, and ends when the znode is known to be gone.
// Keep returns at once. The channel gets nil when the znode is there, and only then
// Owner and Grant may be called; or what has prevented it. Remove may be called at any
// time, and must be unless there was an error.
func Keep(s *recipe.Setup, path string, data []byte) (*Node, <-chan error) {
	return start(context.Background(), s, path, data, true)
}

func start(ctx context.Context, s *recipe.Setup, path string, data []byte, lasting bool) (*Node, <-chan error) {
	standing, stop := context.WithCancelCause(context.Background())
	n := &Node{
		Setup: s, path: path, lasting: lasting, stop: stop, over: make(chan struct{}),
		sub: s.Subscribe(),
	}
	created := make(chan error, 1)
	go n.live(ctx, standing, data, created)
	return n, created
}

// Path is the znode's.
func (n *Node) Path() string { return n.path }

// Owner is the session.
func (n *Node) Owner() int64 { return n.owner }

// Grant ends with the znode, or when the session can no longer be proven to live. Its
// token is the znode's czxid. An end of the session, or of the connection by its
// owner, may first be told as zkerror.ErrDeleted.
func (n *Node) Grant() *grant.Grant { return n.grant }

// Remove ends the grant with reason and removes the znode. It returns nil when that
// is confirmed, or the context's cause, and goes on then.
func (n *Node) Remove(ctx context.Context, reason error) error {
	n.stop(reason)
	select {
	case <-n.over:
		return n.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// live is the znode's goroutine.
func (n *Node) live(ctx, standing context.Context, data []byte, created chan<- error) {
	defer close(n.over)
	defer n.sub.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(standing, func() { cancel(context.Cause(standing)) })()
	own, err := n.create(ctx, data)
	if err != nil {
		if n.perhaps {
			n.err = n.remove()
		}
		created <- err
		return
	}
	hold, deadline := n.hold, n.sub.Deadline
	if n.lasting {
		hold, deadline = n.keep, nil
	}
	g, end := grant.New(n.czxid, deadline)
	n.grant = g
	created <- nil
	reason := hold(standing, own)
	end(zkerror.Refine(reason))
	n.sub.Rest()
	if !errors.Is(reason, zkerror.ErrSessionExpired) && !errors.Is(reason, zkerror.ErrDeleted) {
		n.err = n.remove()
	}
}

// create creates the znode. n.owner is set as soon as it may be there, and n.czxid
// when it is certain.
func (n *Node) create(ctx context.Context, data []byte) (*watch.Watch, error) {
	tried, before := false, int64(0) // a try in the session before may have been carried out
	for {
		sent, session := time.Now(), n.Conn.SessionID()
		answer := request.Start(func() (string, error) {
			return n.Conn.Create(n.path, data, zk.FlagEphemeral, n.ACL)
		})
		var err error
		select {
		case a := <-answer:
			err = a.Err
		case <-ctx.Done():
			// Only the answer tells; it comes when the connection is back.
			if a := <-answer; a.Err == nil || request.Transient(a.Err) {
				n.owner, n.perhaps = session, true
			}
			return nil, context.Cause(ctx)
		}
		switch {
		case err == nil:
			n.owner, n.perhaps = session, true
			own, err := n.own(ctx, sent)
			if errors.Is(err, zk.ErrNoNode) {
				err = zkerror.ErrDeleted // or it went with its session, which is as well
			}
			return own, err
		case request.Transient(err):
			n.owner, n.perhaps, tried, before = session, true, true, session
			if err := n.again(ctx, err); err != nil {
				return nil, err
			}
			own, err := n.own(ctx, time.Time{})
			var taken *Taken
			if err == nil || !errors.Is(err, zk.ErrNoNode) && !errors.As(err, &taken) {
				return own, err
			}
			n.perhaps = false
		case errors.Is(err, zk.ErrNoNode):
			if err := znode.Make(ctx, n.Conn, path.Dir(n.path), n.ACL, true); err != nil {
				return nil, err
			}
		case errors.Is(err, zk.ErrNodeExists):
			stat, err := n.stat(ctx)
			if err != nil {
				return nil, err
			}
			if stat != nil && tried && znode.IsEphemeral(stat) && (stat.EphemeralOwner == before || stat.EphemeralOwner == n.Conn.SessionID()) {
				n.owner, n.perhaps = stat.EphemeralOwner, true
				return n.own(ctx, time.Time{})
			}
			if stat != nil {
				return nil, &Taken{n.path, stat.EphemeralOwner, stat.Czxid}
			}
		default:
			return nil, err
		}
	}
}

// own reads the znode, which this session has created or may have, and watches its end.
// sent is when its create was sent, as a first proof.
func (n *Node) own(ctx context.Context, sent time.Time) (*watch.Watch, error) {
	n.epoch = n.sub.State().Epoch
	found, err := request.Read(ctx, n.Conn, func() (watch.Found, error) {
		if sent.IsZero() { // after a failure another server may answer, and lag behind
			if _, err := n.Conn.Sync(n.path); err != nil {
				return watch.Found{}, err
			}
		}
		return n.watch()
	})
	if err == nil && found.Stat.EphemeralOwner == n.Conn.SessionID() && found.Stat.EphemeralOwner != n.owner {
		// The create waited for a connection, and was carried out in the next session.
		n.owner, sent = found.Stat.EphemeralOwner, time.Time{}
	}
	switch {
	case err != nil:
		return nil, err
	case found.Stat.EphemeralOwner != n.owner:
		return nil, &Taken{n.path, found.Stat.EphemeralOwner, found.Stat.Czxid}
	case n.Conn.SessionID() != n.owner:
		return nil, zkerror.ErrSessionExpired
	}
	n.czxid = found.Stat.Czxid
	if n.lasting {
		return found.Watch, nil
	}
	n.sub.Prove(n.path, sent)
	return found.Watch, n.proven(ctx)
}

// lost says whether the connection's state alone ends the znode.
func (n *Node) lost(state session.State) error {
	switch {
	case state.Closed:
		return zkerror.ErrConnClosed
	case state.Session != n.owner:
		return zkerror.ErrSessionExpired
	case state.Missing:
		return zkerror.ErrDeleted
	}
	return nil
}

// proven waits until the session is proven to live.
func (n *Node) proven(ctx context.Context) error {
	for {
		state := n.sub.State()
		if err := n.lost(state); err != nil || state.Proven {
			return err
		}
		select {
		case <-n.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold holds the znode until something ends it, and returns what.
func (n *Node) hold(ctx context.Context, own *watch.Watch) error {
	lapses := n.sub.State().Lapses
	for {
		state := n.sub.State()
		if err := n.lost(state); err != nil {
			return err
		}
		if !state.Proven || state.Lapses != lapses {
			return zkerror.ErrLeaseExpired
		}
		select {
		case event := <-own.C():
			event = own.Take(event)
			own = nil // without it the checks tell
			switch {
			case errors.Is(event.Err, zk.ErrClosing):
				return zkerror.ErrConnClosed
			case event.Type == zk.EventNotWatching:
				return zkerror.ErrSessionExpired
			case event.Type == zk.EventNodeDeleted:
				return zkerror.ErrDeleted // or expired, or closed: those are told later
			}
		case <-n.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stat returns the znode's Stat, nil where there is none.
func (n *Node) stat(ctx context.Context) (*zk.Stat, error) {
	return request.Read(ctx, n.Conn, func() (*zk.Stat, error) {
		exists, stat, err := n.Conn.Exists(n.path)
		if !exists {
			stat = nil
		}
		return stat, err
	})
}

// again waits until a request that has failed can be repeated.
func (n *Node) again(ctx context.Context, err error) error {
	if request.Closed(ctx, n.Conn, err) {
		return zkerror.ErrConnClosed
	}
	return request.Pause(ctx, 5*time.Millisecond)
}

// remove deletes the znode if it is this one. It goes on until that is certain, the
// session is over, or the connection is closed, which is an error.
func (n *Node) remove() error {
	ctx := context.Background()
	for {
		own, err := n.isOwn(ctx)
		if err != nil || !own {
			return zkerror.Refine(err)
		}
		// A delete that has failed is not repeated before that is known anew: there
		// may be another's znode by then.
		_, err = request.Do(ctx, func() (struct{}, error) { return struct{}{}, n.Conn.Delete(n.path, -1) })
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case !request.Transient(err):
			return zkerror.Refine(err)
		}
		if err := n.again(ctx, err); err != nil {
			return err
		}
	}
}

// isOwn reports whether the znode is there, and this one.
func (n *Node) isOwn(ctx context.Context) (bool, error) {
	stat, err := request.Read(ctx, n.Conn, func() (*zk.Stat, error) {
		if _, err := n.Conn.Sync(n.path); err != nil {
			return nil, err
		}
		exists, stat, err := n.Conn.Exists(n.path)
		if !exists {
			stat = nil
		}
		return stat, err
	})
	switch {
	case err != nil, stat == nil, !znode.IsEphemeral(stat):
		return false, err
	case n.czxid != 0:
		return stat.Czxid == n.czxid && stat.EphemeralOwner == n.owner, nil
	}
	return stat.EphemeralOwner == n.owner || stat.EphemeralOwner == n.Conn.SessionID(), nil
}
