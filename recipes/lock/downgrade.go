package lock

import (
	"context"
	"fmt"
	"path"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// WriteHold is a [RWMutex] that was granted for writing.
type WriteHold struct {
	*Hold
	renames chan<- line.Rename // to the line
	reader  line.Naming        // what it can become
}

// Downgrade makes the write lock a read lock, at the same place in line: nobody
// writes between, and readers that wait directly behind are let in. The hold goes on
// with the same token; only its Path changes. It returns nil once that is done, and
// when it was done before.
//
// The error is [ErrNotHeld] when the lock is not held; an error that wraps
// [recipes.ErrUnconfirmed] when the context ends meanwhile: then the downgrade goes
// on, and another call waits for it; or what ZooKeeper has against it, and the hold
// is a write lock as before.
func (h *WriteHold) Downgrade(ctx context.Context) error {
	return setup.Fail("downgrade", h.own(), h.downgrade(ctx))
}

func (h *WriteHold) downgrade(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for {
		h.mu.Lock()
		if line.Reads(path.Base(h.path)) {
			h.mu.Unlock()
			return nil
		}
		under := h.renaming
		select {
		case <-under: // a former one has failed
			under = nil
		default:
		}
		var outcome chan error
		if under == nil {
			under, outcome = make(chan struct{}), make(chan error, 1)
			h.renaming = under
			go func() {
				defer close(under)
				outcome <- h.rename()
			}()
		}
		h.mu.Unlock()
		select {
		case <-under:
			if outcome != nil {
				return <-outcome
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", sentinel.ErrUnconfirmed, context.Cause(ctx))
		}
	}
}

// rename has the line rename the own znode; it ends with the grant at the latest.
func (h *WriteHold) rename() error {
	done := make(chan error, 1)
	select {
	case h.renames <- line.Rename{To: h.reader, Done: done}:
	case <-h.Done():
		return ErrNotHeld
	}
	select {
	case err := <-done:
		return err
	case <-h.Done():
		return ErrNotHeld
	}
}
