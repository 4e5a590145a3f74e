package counter

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Change is a state of a value.
type Change[T any] struct {
	Value   T       // the zero value where there is none
	Version Version // the zero Version where there is none
	// Err is [ErrFormat] where the data cannot be read, and other changes may
	// follow; any other error is in the last element, and says what ended the
	// channel: [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Changes delivers the value as it is and whenever it has changed, until the context
// ends; then the channel is closed. A reader that is late gets the newest state, not
// those that it missed. States may also be skipped when they follow each other
// closely. The watch of the client library stays until the value changes next.
func (v *Value[T]) Changes(ctx context.Context) <-chan Change[T] {
	c := make(chan Change[T], 1)
	w := watcher[T]{v: v, sub: session.Subscribe(v.at.Conn, v.at.Timeout), c: c}
	go func() {
		defer close(c)
		defer w.sub.Close()
		if err := w.run(ctx); ctx.Err() == nil {
			w.publish(Change[T]{Err: setup.Fail("watch", v.at.Path, err)})
		}
	}()
	return c
}

// watcher belongs to the goroutine that Changes starts.
type watcher[T any] struct {
	v     *Value[T]
	sub   *session.Subscription
	c     chan Change[T]
	last  Version
	told  bool
	watch <-chan zk.Event
}

func (w *watcher[T]) run(ctx context.Context) error {
	for {
		epoch := w.sub.State().Epoch
		if err := w.look(ctx); err != nil {
			return err
		}
		for w.watch != nil {
			select {
			case event := <-w.watch:
				w.watch = nil
				if errors.Is(event.Err, zk.ErrClosing) {
					return request.ErrClosed
				}
			case <-w.sub.Changed():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			state := w.sub.State()
			if state.Closed {
				return sentinel.ErrConnClosed
			}
			if state.Up && state.Epoch != epoch {
				// The client gives up setting watches anew when that fails once.
				w.watch = nil
			}
		}
	}
}

// look reads the value and sets a watch, in one request.
func (w *watcher[T]) look(ctx context.Context) error {
	v := w.v
	seen, err := request.Read(ctx, v.at.Conn, func() (watched, error) {
		for {
			data, stat, watch, err := v.at.Conn.GetW(v.at.Path)
			if err == nil {
				return watched{snapshot{versionOf(stat), data}, watch}, nil
			} else if !errors.Is(err, zk.ErrNoNode) {
				return watched{}, err
			}
			exists, _, watch, err := v.at.Conn.ExistsW(v.at.Path)
			if !exists || err != nil {
				return watched{watch: watch}, err
			}
		}
	})
	if err != nil {
		return err
	}
	w.watch = seen.watch
	if seen.Version == w.last && w.told {
		return nil
	}
	w.last, w.told = seen.Version, true
	v.note(seen.snapshot)
	value, err := v.decode(seen.snapshot)
	w.publish(Change[T]{value, seen.Version, err})
	return nil
}

type watched struct {
	snapshot
	watch <-chan zk.Event
}

// publish puts the newest state in place of one that was not read.
func (w *watcher[T]) publish(c Change[T]) {
	select {
	case <-w.c:
	default:
	}
	w.c <- c // this goroutine is the only one that sends
}
