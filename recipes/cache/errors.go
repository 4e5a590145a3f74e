package cache

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrClosed: the cache was closed by Close.
	ErrClosed = errors.New("cache: closed")
	// ErrTooLarge: the data, or the names of the children, are larger than the
	// receive buffer of the connection (zk.WithMaxBufferSize), which breaks when they are
	// requested. They are not in memory; they are requested again when the znode has
	// changed. It is recipes.ErrTooLarge.
	ErrTooLarge = recipes.ErrTooLarge
)
