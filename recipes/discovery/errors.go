package discovery

import (
	"errors"
	"fmt"
)

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrNoInstance is returned if the service lacks an instance that is enabled and not
	// reported as down.
	ErrNoInstance = errors.New("discovery: no instance available")
)

// UnreadableError is the error of a znode that could not be read as an instance.
type UnreadableError struct {
	// Path is the path of the znode.
	Path string
	// Err is the reason: [recipes.ErrFormat], [recipes.ErrPermission] or [recipes.ErrTooLarge], to
	// be tested with errors.Is.
	Err error
}

// Error returns the path and the reason.
func (e *UnreadableError) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }

// Unwrap returns the wrapped error.
func (e *UnreadableError) Unwrap() error { return e.Err }
