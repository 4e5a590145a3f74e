package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// ChildConfig describes the children to read, as values of type T.
type ChildConfig[T any] struct {
	Path string
	// Parse returns the value of a child from the result of reading it. If it returns an error,
	// the reading of all children ends with that error. It is not called with zk.ErrNoNode.
	Parse func(name string, found watch.Found, err error) (T, error)
	// NamesOnly reads only the list: Parse is called with an empty result.
	NamesOnly bool
	// Skip, if not nil, reports whether a child is ignored.
	Skip func(name string) bool
}

// maxConcurrent is the number of children that are read concurrently.
const maxConcurrent = 16

// List returns the children by name, according to the server that the connection uses. If the
// znode does not exist, the map is empty. If the list is larger than the connection accepts, the
// error is zkerror.ErrTooLarge.
func ListChildren[T any](ctx context.Context, conn *zk.Conn, c ChildConfig[T]) (map[string]T, error) {
	list, err := connection.Read(ctx, conn, func() (watch.Found, error) { return watch.Listing(conn, c.Path) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	children := map[string]T{}
	return children, c.read(c.filter(list.Children), func(name string) (watch.Found, error) {
		return connection.Read(ctx, conn, func() (found watch.Found, err error) {
			found.Data, found.Stat, err = connection.Get(conn, path.Join(c.Path, name))
			return found, err
		})
	}, func(name string, value T, _ watch.Found) { children[name] = value })
}

// filter returns the names that are not skipped.
func (c *ChildConfig[T]) filter(names []string) []string {
	if c.Skip == nil {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), c.Skip)
}

// read reads children concurrently, and calls store for each that exists, one at a time.
func (c *ChildConfig[T]) read(names []string, read func(name string) (watch.Found, error), store func(name string, value T, found watch.Found)) error {
	type result struct {
		name  string
		found watch.Found
		err   error
	}
	next, results := make(chan string), make(chan result)
	var readers sync.WaitGroup
	for range min(len(names), maxConcurrent) {
		readers.Go(func() {
			for name := range next {
				var found watch.Found
				var err error
				if !c.NamesOnly {
					found, err = read(name)
				}
				results <- result{name, found, err}
			}
		})
	}
	go func() {
		for _, name := range names {
			next <- name
		}
		close(next)
		readers.Wait()
		close(results)
	}()
	var failure error
	for r := range results {
		if errors.Is(r.err, zk.ErrNoNode) {
			continue // it was deleted after the listing
		}
		value, err := c.Parse(r.name, r.found, r.err)
		if err != nil {
			failure = fmt.Errorf("child %q: %w", r.name, err)
			continue
		}
		store(r.name, value, r.found)
	}
	return failure
}
