package lock

import (
	"fmt"
	"path"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// WriteHold represents the possession of an [RWMutex] for writing.
type WriteHold struct {
	*Hold
	renames chan<- queue.Rename // to the contender
	reader  contender.Naming    // the naming after a downgrade
}

// Downgrade converts the write lock into a read lock without releasing it: no other writer
// can acquire the lock in between, and readers that follow directly are granted the lock.
// The hold keeps its token; only its Path changes. Downgrade returns nil when the
// conversion is complete, or if it was complete before.
//
// It returns [recipes.ErrNotHeld] if the lock is not held. It blocks for at most two seconds. If
// ZooKeeper has not answered by then, it returns an error that wraps
// [recipes.ErrUnconfirmed], and the conversion continues; another call waits for it. After
// other errors of ZooKeeper the hold is still a write lock.
func (h *WriteHold) Downgrade() error {
	return recipe.Fail(h.conn, "downgrade", h.znodePath(), h.downgrade(time.Now().Add(limit.Confirm)))
}

func (h *WriteHold) downgrade(end time.Time) error {
	for {
		h.mu.Lock()
		if contender.Reads(path.Base(h.path)) {
			h.mu.Unlock()
			return nil
		}
		inProgress := h.renaming
		select {
		case <-inProgress: // an earlier rename has failed
			inProgress = nil
		default:
		}
		var outcome chan error
		if inProgress == nil {
			inProgress, outcome = make(chan struct{}), make(chan error, 1)
			h.renaming = inProgress
			go func() {
				defer close(inProgress)
				outcome <- h.rename()
			}()
		}
		h.mu.Unlock()
		switch {
		case !limit.Await(inProgress, end):
			return fmt.Errorf("%w: %w", connection.ErrUnconfirmed, limit.ErrConfirm)
		case outcome != nil:
			return <-outcome
		}
	}
}

// rename makes the contender rename its znode. It returns at the latest when the grant ends.
func (h *WriteHold) rename() error {
	h.runNow()
	done := make(chan error, 1)
	select {
	case h.renames <- queue.Rename{To: h.reader, Done: done}:
	case <-h.Done():
		return recipes.ErrNotHeld
	}
	select {
	case err := <-done:
		return err
	case <-h.Done():
		return recipes.ErrNotHeld
	}
}
