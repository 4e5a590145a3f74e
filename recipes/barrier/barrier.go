package barrier

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/znode"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Barrier holds whoever waits at it while it is set. Anybody can set and remove it; it
// stays when its setter goes.
type Barrier struct {
	at *setup.Setup
}

// NewBarrier makes the barrier at path, which need not exist. It sends no request.
// Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath], [recipes.ErrInvalidOption].
func NewBarrier(conn *zk.Conn, path string, opts ...recipes.Option) (*Barrier, error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return &Barrier{at: s}, nil
}

// Set sets the barrier. That it is set already is fine.
func (b *Barrier) Set(ctx context.Context) error {
	return setup.Fail("set barrier", b.at.Path, znode.Make(ctx, b.at.Conn, b.at.Path, b.at.ACL, false))
}

// Remove lets everybody through. That there is no barrier is fine.
func (b *Barrier) Remove(ctx context.Context) error {
	err := request.Retry(ctx, b.at.Conn, func() error { return b.at.Conn.Delete(b.at.Path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return setup.Fail("remove barrier", b.at.Path, err)
}

// Wait returns nil as soon as there is no barrier, or the context's cause, or
// [recipes.ErrConnClosed] or [recipes.ErrPermission].
func (b *Barrier) Wait(ctx context.Context) error {
	return setup.Fail("wait at barrier", b.at.Path, b.wait(ctx))
}

func (b *Barrier) wait(ctx context.Context) error {
	sub := b.at.Subscribe()
	defer sub.Close()
	node := watch.NewReader(b.at.Conn, sub, b.at.Path, watch.Data)
	for {
		_, err := node.Read(ctx)
		if errors.Is(err, zk.ErrNoNode) {
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
