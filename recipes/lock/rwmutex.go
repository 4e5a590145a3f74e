package lock

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// RWMutex is a lock that can be held by one writer or by any number of readers. Readers and writers share one
// queue: a writer waits for all earlier contenders, a reader waits for earlier writers. Neither readers nor
// writers starve. Like [Mutex], it does not keep local state.
//
// A write lock can be converted into a read lock ([WriteHold.Downgrade]). A read lock
// cannot be converted into a write lock: a client that holds a read lock and calls Lock
// waits for itself until the context is done. Only if Lock is called with the context of
// the hold, or with one derived from it, does it return [ErrUpgrade] immediately.
//
// Tokens order holds that exclude each other, but not the holds of readers. A resource
// should therefore reject tokens smaller than the greatest it has seen from a writer.
type RWMutex struct{ lockQueue }

// NewRWMutex returns the lock at path. Options are those of package recipes, [WithName] and [WithLockDelay].
// Errors: [recipes.ErrInvalid].
func NewRWMutex(conn *zk.Conn, path string, opts ...Option) (*RWMutex, error) {
	q, err := newQueue(conn, path, "lock", opts, withLockDelay)
	if err != nil {
		return nil, err
	}
	return &RWMutex{q}, nil
}

// Lock acquires the lock for writing. It blocks and returns errors like [Mutex.Lock], and
// returns [ErrUpgrade] if ctx is derived from the context of a read lock of this RWMutex.
func (m *RWMutex) Lock(ctx context.Context) (*WriteHold, error) {
	h, err := m.write(false, func(c acquisition) (*Hold, error) {
		if err := checkReentry(ctx, m.setup, true); err != nil {
			return nil, err
		}
		return c.wait(ctx)
	})
	return h, m.setup.Fail("lock", m.setup.Path, err)
}

// TryLock is like Lock, but does not wait for other clients. See [Mutex.TryLock].
func (m *RWMutex) TryLock(ctx context.Context) (*WriteHold, error) {
	h, err := m.write(true, func(c acquisition) (*Hold, error) { return tryAcquire(ctx, &m.lockQueue, true, nil, c) })
	return h, m.setup.Fail("try to lock", m.setup.Path, err)
}

// RLock acquires the lock for reading. It blocks and returns errors like [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	err := checkReentry(ctx, m.setup, false)
	var h *Hold
	if err == nil {
		h, err = m.readAcquisition(false).wait(ctx)
	}
	return h, m.setup.Fail("lock for reading", m.setup.Path, err)
}

// TryRLock is like RLock, but does not wait for other clients: it returns [ErrHeld] if a
// writer holds the lock or waits for it.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	h, err := tryAcquire(ctx, &m.lockQueue, false, isWriter, m.readAcquisition(true))
	return h, m.setup.Fail("try to lock for reading", m.setup.Path, err)
}

func isWriter(name string) bool { return !contender.Reads(name) }

// readAcquisition returns the parameters for acquiring the lock for reading.
func (m *RWMutex) readAcquisition(noWait bool) acquisition {
	cfg := m.config(contender.CuratorRead, contender.KazooRead)
	cfg.Blocks = isWriter
	return acquisition{setup: m.setup, cfg: cfg, noWait: noWait, delay: m.settings.delay}
}

// write calls f, which acquires the lock with the given parameters for writing, and returns the hold as a
// WriteHold.
func (m *RWMutex) write(noWait bool, f func(acquisition) (*Hold, error)) (*WriteHold, error) {
	cfg := m.config(contender.CuratorWrite, contender.Kazoo)
	cfg.Replaceable = isWriter // Downgrade replaces the znode of a writer by the znode of a reader
	renames := make(chan queue.Rename)
	cfg.Renames = renames
	h, err := f(acquisition{setup: m.setup, cfg: cfg, noWait: noWait, delay: m.settings.delay})
	if err != nil {
		return nil, err
	}
	return &WriteHold{h, renames, m.naming(contender.CuratorRead, contender.KazooRead)}, nil
}

// WriteHold represents the possession of an [RWMutex] for writing.
type WriteHold struct {
	*Hold
	renames chan<- queue.Rename // passes the request of Downgrade to the contender
	reader  contender.Naming    // names of the znode after a downgrade
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
		case <-inProgress: // an earlier rename has failed, so another rename can begin
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

// rename makes the contender replace its znode by the znode of a reader, and returns the result. It returns at
// the latest when the grant ends.
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
