package cache

import (
	"fmt"
	"math"

	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Scope is how many levels below its path a cache keeps: any number from 0 on.
type Scope int

const (
	// Node is the znode at the path alone.
	Node Scope = 0
	// Children is the znode and its children.
	Children Scope = 1
	// Subtree is the znode and everything below it.
	Subtree Scope = math.MaxInt
)

// settings are what the options of this package set.
type settings struct {
	concurrency int
	withoutData bool
}

// WithConcurrency sets how many requests a cache may have under way at once, 64 by
// default. All of them are on the one connection, which others use too: more do
// not fill much faster.
func WithConcurrency(n int) recipes.Option {
	return setup.Own("cache.WithConcurrency", func(s *settings) { s.concurrency = n })
}

// WithoutData leaves the data out of memory and events, where Stats, names and
// changes are all that is needed. It is still read.
func WithoutData() recipes.Option {
	return setup.Own("cache.WithoutData", func(s *settings) { s.withoutData = true })
}

func (s *settings) check(scope Scope) error {
	switch {
	case scope < 0:
		return fmt.Errorf("%w: scope %d", sentinel.ErrInvalidOption, scope)
	case s.concurrency < 1:
		return fmt.Errorf("%w: WithConcurrency(%d)", sentinel.ErrInvalidOption, s.concurrency)
	}
	return nil
}
