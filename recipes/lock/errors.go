package lock

import "errors"

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrHeld is returned if another client holds the lock or waits for it.
	ErrHeld = errors.New("lock: held by another client")
	// ErrEarly is returned by [Period.Try] if a hold has begun in this period.
	ErrEarly = errors.New("lock: the period has not ended")
	// ErrUpgrade is returned if Lock is called with the context of a read lock of the same
	// RWMutex. It would wait for that read lock.
	ErrUpgrade = errors.New("lock: a read lock cannot become a write lock")
	// ErrReentrant is returned if Lock is called with the context of a hold of the same
	// lock, and would or could wait for that hold.
	ErrReentrant = errors.New("lock: already held by the caller")
)
