package cache

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Typed is a view of a cache whose znodes contain values of one type. Create it with [Of]. Its methods may be called
// from any goroutine.
type Typed[T any] struct {
	cache *Cache
	codec recipes.Codec[T]
}

// Of returns a view of cache whose znodes contain values that c converts; only c.Decode is used. cache remains usable,
// and must be closed: its events and [Cache.All] deliver every znode, whatever its data is, and [Typed.Value] returns
// its value.
func Of[T any](cache *Cache, c recipes.Codec[T]) Typed[T] { return Typed[T]{cache, c} }

// Get returns the value of the cached znode at path, decoded at each call. found is false if the znode is not in
// the cache. Errors are those of [Typed.Value].
func (t Typed[T]) Get(path string) (value T, found bool, err error) {
	z, found := t.cache.Get(path)
	if found {
		value, err = t.Value(z)
	}
	return value, found, err
}

// Value returns the value of a znode, also of one in an [Event]. The error wraps [recipes.ErrFormat], or [Znode.Err] if
// the data could not be read, or [recipes.ErrInvalid] if the cache is [WithoutData].
func (t Typed[T]) Value(z Znode) (value T, err error) {
	switch {
	case z.Err != nil:
		err = z.Err
	case len(z.Data) != int(z.Stat.DataLength):
		err = fmt.Errorf("%w: the cache was created with WithoutData, so it has no values", recipes.ErrInvalid)
	default:
		value, err = recipe.DecodeValue(t.codec.Decode, z.Data)
	}
	if err != nil {
		err = fmt.Errorf("value of %s: %w", z.Path, err)
	}
	return value, err
}
