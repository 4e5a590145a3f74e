package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/ephemeral"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// keeper is the goroutine of a Persistent.
type keeper struct {
	*Persistent
	sub *session.Subscription
}

func newKeeper(p *Persistent) *keeper {
	return &keeper{p, p.at.Subscribe()}
}

func (k *keeper) run(ctx context.Context) {
	reason := zkerror.Refine(k.keep(ctx))
	k.sub.Close()
	k.stop(reason) // releases the context
	if errors.Is(reason, zkerror.ErrConnClosed) && k.removal == nil {
		k.removal = reason // what there was goes with the session
	}
	k.err = reason
	k.publish(Presence{Err: reason})
	close(k.status)
	close(k.ended)
}

const (
	// lasts is how long a znode must have been there to be created again at once.
	lasts = time.Second
	// pauseMax is how long a znode that is deleted again and again is waited with.
	pauseMax = time.Second
)

// keep goes on until the context ends, which returns its cause, or until nothing can be
// done any more.
func (k *keeper) keep(ctx context.Context) error {
	var pause time.Duration
	for {
		if err := request.Pause(ctx, pause); err != nil {
			return err
		}
		begin := time.Now()
		err := k.once(ctx)
		var taken *ephemeral.Taken
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &taken):
			if err := k.awaitFree(ctx, taken); err != nil {
				return err
			}
		case errors.Is(err, zkerror.ErrSessionExpired), errors.Is(err, zkerror.ErrDeleted):
			k.publish(Presence{Err: err})
		default:
			return err
		}
		pause = min(2*pause+10*time.Millisecond, pauseMax)
		if time.Since(begin) >= lasts {
			pause = 0
		}
	}
}

// once creates the znode and keeps it until it is gone or the context ends.
func (k *keeper) once(ctx context.Context) error {
	data, n := k.next()
	node, created := ephemeral.Keep(k.at, k.at.Path, data)
	select {
	case err := <-created:
		if err != nil {
			return zkerror.Refine(err)
		}
	case <-ctx.Done():
		k.removal = node.Remove(context.Background(), context.Cause(ctx))
		return context.Cause(ctx)
	}
	k.wrote(n, nil)
	k.publish(Presence{Present: true, Token: node.Grant().Token(), Session: node.Owner()})
	var version int32
	there := node.Grant().Context()
	for {
		select {
		case <-there.Done():
			_ = node.Remove(context.Background(), nil) // it is gone, or the connection is
			// Closing the connection deletes the znode first.
			request.AwaitClosing(ctx, k.at.Conn, request.ClosingTime)
			return node.Grant().Err()
		case <-ctx.Done():
			k.removal = node.Remove(context.Background(), context.Cause(ctx))
			return context.Cause(ctx)
		case <-k.wake:
			if data, next := k.next(); next != n {
				writing, cancel := context.WithCancel(there)
				stop := context.AfterFunc(ctx, cancel)
				refusal, gone := k.write(writing, node, data, &version)
				stop()
				cancel()
				if !gone {
					n = next
					k.wrote(n, refusal)
				}
			}
		}
	}
}

// write writes data to the znode, which must be at version, or says why that is refused.
// gone says that it could not be, because the znode is gone or the context has ended.
//
// Each write expects the version before it: one that is carried out late, because it
// waited in an old connection, cannot undo a newer one.
func (k *keeper) write(ctx context.Context, node *ephemeral.Node, data []byte, version *int32) (refusal error, gone bool) {
	for {
		if !k.awaitSession(ctx, node.Owner()) {
			return nil, true
		}
		expected := *version
		stat, err := request.Do(ctx, func() (*zk.Stat, error) { return k.at.Conn.Set(k.at.Path, data, expected) })
		switch {
		case err == nil:
			*version = stat.Version
			return nil, false
		case ctx.Err() != nil:
			return nil, true
		case !request.Transient(err) && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode):
			return err, false
		}
		stat, err = request.Read(ctx, k.at.Conn, func() (*zk.Stat, error) {
			if _, err := k.at.Conn.Sync(k.at.Path); err != nil {
				return nil, err
			}
			_, stat, err := request.Get(k.at.Conn, k.at.Path)
			return stat, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && stat.Czxid != node.Grant().Token():
			<-ctx.Done() // the znode's own end is told to whoever keeps it
			return nil, true
		case ctx.Err() != nil:
			return nil, true
		case err != nil:
			return err, false
		}
		*version = stat.Version
	}
}

// awaitSession waits until a request is sent in that session: what waits in the client
// library for a connection is sent in whatever session comes next, where the znode may
// be another's. It returns false when the context has ended.
func (k *keeper) awaitSession(ctx context.Context, session int64) bool {
	for {
		if state := k.sub.State(); state.Up && state.Session == session {
			return true
		}
		select {
		case <-k.sub.Changed():
		case <-ctx.Done():
			return false
		}
	}
}

// awaitFree waits until a znode that is in the way has gone. It is never deleted, even
// where an earlier session of this very connection has left it: it is about to go then,
// and a delete that comes late might hit one that another has created meanwhile.
func (k *keeper) awaitFree(ctx context.Context, taken *ephemeral.Taken) error {
	k.taken(taken.Owner, taken.Czxid)
	znode := watch.NewReader(k.at.Conn, k.sub, k.at.Path, watch.Children)
	for {
		found, err := znode.Read(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		k.taken(found.Stat.EphemeralOwner, found.Stat.Czxid)
		if _, err := znode.Wait(ctx, nil); err != nil {
			return err
		}
	}
}

func (k *keeper) taken(owner, czxid int64) {
	k.publish(Presence{Token: czxid, Session: owner, Err: fmt.Errorf("%w: %s of session %#x", ErrTaken, k.at.Path, owner)})
}
