package lock

import "errors"

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrHeld: somebody else has the lock, or waits for it.
	ErrHeld = errors.New("lock: held by somebody else")
	// ErrNotHeld: the grant has ended; nothing was applied.
	ErrNotHeld = errors.New("lock: not held any more")
	// ErrReleased: the grant was released by Release.
	ErrReleased = errors.New("lock: released")
	// ErrUpgrade: a write lock was asked for with the context of a read lock of the
	// same RWMutex, for which it would wait.
	ErrUpgrade = errors.New("lock: a read lock cannot become a write lock")
	// ErrReentrant: a lock was asked for with the context of a hold of the same
	// lock, for whose end it would, or could, wait.
	ErrReentrant = errors.New("lock: held by the caller already")
)
