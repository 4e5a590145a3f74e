package cache

import (
	"fmt"
	"math"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Scope is the number of levels below its path that a cache keeps. It must not be negative.
type Scope int

const (
	// Node selects only the znode at the path.
	Node Scope = 0
	// Children selects the znode and its children.
	Children Scope = 1
	// Subtree selects the znode and all its descendants.
	Subtree Scope = math.MaxInt
)

// Option is an option of a [Cache]: [WithConcurrency], [WithFilter], [WithoutData], and every [recipes.Option].
type Option interface{ ApplyCache(*recipe.Setup) }

// ownOption is an option that this package defines, and not package recipes.
type ownOption func(*recipe.Setup)

func (o ownOption) ApplyCache(s *recipe.Setup) { o(s) }

// cacheOptions contains what the options of this package set.
type cacheOptions struct {
	concurrency int
	withoutData bool
	filter      func(path string) bool
}

// WithConcurrency sets the maximum number of requests that a cache has in flight. The
// default is 64. All requests share one connection with its other users, so a higher number
// does not fill the cache much faster.
func WithConcurrency(n int) Option {
	return ownOption(recipe.Own("cache.WithConcurrency", func(o *cacheOptions) { o.concurrency = n }))
}

// WithoutData omits the data from the cache and its events, for programs that need only
// Stats, names and changes. The data is still read from the server.
func WithoutData() Option {
	return ownOption(recipe.Own("cache.WithoutData", func(o *cacheOptions) { o.withoutData = true }))
}

// WithFilter excludes the znodes below the cache's path for which keep returns false, and all znodes below them,
// for example the queues of locks. Excluded znodes cost no requests and no watches. keep is called with the path
// of each listed znode, by one goroutine at a time, again for each listing, and should return the same each time.
// The cache waits while keep runs.
func WithFilter(keep func(path string) bool) Option {
	return ownOption(recipe.Own("cache.WithFilter", func(o *cacheOptions) { o.filter = keep }))
}

func (o *cacheOptions) validate(scope Scope) error {
	switch {
	case scope < 0:
		return fmt.Errorf("%w: cache.New: scope %d: must not be negative", connection.ErrInvalid, scope)
	case o.concurrency < 1:
		return fmt.Errorf("%w: WithConcurrency(%d): must be at least 1", connection.ErrInvalid, o.concurrency)
	}
	return nil
}
