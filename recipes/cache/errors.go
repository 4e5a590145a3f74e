package cache

import "errors"

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrClosed: the cache was closed by Close.
	ErrClosed = errors.New("cache: closed")
	// ErrTooLarge: the data, or the names of the children, are more than the
	// connection accepts (zk.WithMaxBufferSize), which breaks when they are
	// asked for. They are not in memory; they are asked for again when the znode
	// has changed, or in another session.
	ErrTooLarge = errors.New("cache: larger than the connection accepts")
)
