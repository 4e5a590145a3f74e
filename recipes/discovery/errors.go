package discovery

import (
	"errors"
	"fmt"
)

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrClosed: the registration or provider was closed.
	ErrClosed = errors.New("discovery: closed")
	// ErrTaken: another session, or another registration of this process, has a
	// znode of this name and id. It is left alone.
	ErrTaken = errors.New("discovery: registered by somebody else")
	// ErrNoInstance: the service has no instance that is enabled and not reported
	// as down.
	ErrNoInstance = errors.New("discovery: no instance")
	// ErrFormat: a znode's data are not those of an instance. It is wrapped by
	// [UnreadableError].
	ErrFormat = errors.New("discovery: data are not an instance's")
	// ErrTooMany: the list of a service's instances does not fit the buffer that
	// the connection was limited to with zk.WithMaxBufferSize.
	ErrTooMany = errors.New("discovery: list of instances exceeds the connection's buffer")
)

// UnreadableError says which znode below a service's could not be read as an
// instance, and why: ErrFormat, [recipes.ErrPermission] or [recipes.ErrTooLarge].
type UnreadableError struct {
	Path string
	Err  error
}

func (e *UnreadableError) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }

// Unwrap returns Err.
func (e *UnreadableError) Unwrap() error { return e.Err }
