package cache

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrClosed is returned after the cache was closed by Close.
	ErrClosed = errors.New("cache: closed")
	// ErrTooLarge is the Err of a znode whose data, or list of children, is larger than the
	// receive buffer of the connection (zk.WithMaxBufferSize). It is not cached. Data is read
	// again when it has changed. Children that have changed are listed again by [Cache.Sync]
	// and after a loss of the connection. ErrTooLarge is [recipes.ErrTooLarge].
	ErrTooLarge = recipes.ErrTooLarge
)
