package barrier

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Barrier blocks waiting clients while it is set. Any client can set and remove it. The
// barrier remains set when the session of the client that has set it ends. Its methods may
// be called from any goroutine.
type Barrier struct {
	setup *recipe.Setup
}

// New returns the barrier at path, which does not need to exist. It sends no
// request. Errors: [recipes.ErrInvalid].
func New(conn *zk.Conn, path string, opts ...Option) (*Barrier, error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyBarrier)
	if err != nil {
		return nil, err
	}
	return &Barrier{setup: s}, nil
}

// Set sets the barrier. Setting a barrier that is already set is not an error. If another client
// removes the barrier while Set waits for a reply, Set may set it again.
func (b *Barrier) Set(ctx context.Context) error {
	// If the reply to a create is lost, MakeZnode may send the create again after another client has removed the
	// barrier. This is correct: the removal happened during this call, and no client can prove that the barrier
	// was set before the removal, because Wait shows only that a barrier did not exist.
	err := connection.MakeZnode(ctx, b.setup.Conn, b.setup.Path, b.setup.ACL, false)
	if err == nil {
		err = b.setup.CheckAccess(ctx, b.setup.Path)
	}
	return b.setup.Fail("set barrier", b.setup.Path, err)
}

// Remove removes the barrier and releases the waiting clients. Removing a barrier that does
// not exist is not an error.
func (b *Barrier) Remove(ctx context.Context) error {
	var czxid int64 // the creation zxid of the znode that this call must delete
	err := connection.Retry(ctx, b.setup.Conn, func() error {
		if _, err := b.setup.Conn.Sync(b.setup.Path); err != nil {
			return err
		}
		exists, stat, err := b.setup.Conn.Exists(b.setup.Path)
		if !exists || err != nil {
			return err
		}
		if czxid != 0 && czxid != stat.Czxid {
			// An earlier delete of this call was applied although its reply was lost, and another client has set
			// the barrier again. Do not delete the new barrier.
			return nil
		}
		czxid = stat.Czxid
		return connection.IgnoreNoNode(b.setup.Conn.Delete(b.setup.Path, -1))
	})
	return b.setup.Fail("remove barrier", b.setup.Path, err)
}

// Wait blocks until the barrier does not exist, and returns nil then. It returns the
// context's cause if the context is done first. Other errors: [recipes.ErrConnClosed],
// [recipes.ErrPermission].
func (b *Barrier) Wait(ctx context.Context) error {
	passed := observe(b.setup)
	err := b.setup.Fail("wait at barrier", b.setup.Path, b.wait(ctx))
	passed(nil, err)
	return err
}

// wait blocks until the znode of the barrier does not exist.
func (b *Barrier) wait(ctx context.Context) error {
	sub := b.setup.Subscribe()
	defer sub.Close()
	node := watch.NewReader(b.setup.Conn, sub, b.setup.Path, watch.Data)
	for {
		_, err := readConfirmed(ctx, b.setup, node)
		if connection.IsNoNode(ctx, err) {
			return nil
		}
		if err == nil {
			_, err = node.Wait(ctx, nil)
		}
		if err != nil {
			return err
		}
	}
}

// readConfirmed reads a znode. It returns zk.ErrNoNode only if the znode did not exist at some time after the
// call. If the znode does not exist, readConfirmed reads it again after a Sync, because the server may lag behind
// the server that has confirmed the creation.
func readConfirmed(ctx context.Context, s *recipe.Setup, node *watch.Reader) (watch.Found, error) {
	found, err := node.Read(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.Sync(ctx, s.Path); err == nil {
			found, err = node.Read(ctx)
		}
	}
	return found, err
}
