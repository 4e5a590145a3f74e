package barrier

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/internal/znode"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Barrier holds whoever waits at it while it is set. Anybody can set and remove it; it
// stays when its setter goes.
type Barrier struct {
	at *setup.Setup

	mu    sync.Mutex
	watch <-chan zk.Event // on the znode, shared by all who wait; nil for none
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
	sub := session.Subscribe(b.at.Conn, b.at.Timeout)
	defer sub.Close()
	for {
		epoch := sub.State().Epoch
		watch, shared, err := b.look(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		// A watch of an earlier wait may be one that the client has given up when the
		// connection broke, with nobody looking: the barrier is read again at times.
		var doubt <-chan time.Time
		if shared {
			timer := time.NewTimer(b.at.Timeout)
			defer timer.Stop()
			doubt = timer.C
		}
		for again := false; !again; {
			select {
			case <-watch:
				b.forget(watch)
				again = true
			case <-doubt:
				again = true
			case <-sub.Changed():
				state := sub.State()
				if state.Closed {
					return sentinel.ErrConnClosed
				}
				if again = state.Up && state.Epoch != epoch; again {
					b.forget(watch)
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// look returns zk.ErrNoNode where there is no barrier, and otherwise a watch on it;
// shared says that the watch was there before.
func (b *Barrier) look(ctx context.Context) (watch <-chan zk.Event, shared bool, err error) {
	b.mu.Lock()
	watch = b.watch
	b.mu.Unlock()
	if watch != nil {
		_, err := request.Read(ctx, b.at.Conn, func() (*zk.Stat, error) {
			_, stat, err := b.at.Conn.Get(b.at.Path)
			return stat, err
		})
		return watch, true, err
	}
	watch, err = request.Read(ctx, b.at.Conn, func() (<-chan zk.Event, error) {
		_, _, watch, err := b.at.Conn.GetW(b.at.Path)
		return watch, err
	})
	if err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch == nil {
		b.watch = watch
	}
	return b.watch, false, nil
}

// forget drops a watch that was used up, or that may never fire.
func (b *Barrier) forget(watch <-chan zk.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch == watch {
		b.watch = nil
	}
}
