package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Discovery is a tree of services. Its methods may be called from any goroutine.
type Discovery struct{ setup *recipe.Setup }

// New returns the discovery tree below base, which Curator calls basePath. It sends no
// request. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func New(conn *zk.Conn, base string, options ...recipes.Option) (*Discovery, error) {
	s, err := recipe.New(conn, base, options)
	if err != nil {
		return nil, err
	}
	return &Discovery{s}, nil
}

// Names returns the sorted names of the services, according to the server that the
// connection uses. A service without instances may be included until ZooKeeper removes its
// node.
func (d *Discovery) Names(ctx context.Context) ([]string, error) {
	names, err := request.Read(ctx, d.setup.Conn, func() ([]string, error) {
		names, _, err := request.Children(d.setup.Conn, d.setup.Path)
		return names, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, recipe.Fail("list", d.setup.Path, err)
	}
	slices.Sort(names)
	return names, nil
}

// Instances returns the instances of a service, including disabled ones, sorted by the
// names of their znodes, according to the server that the connection uses. If some
// instances cannot be read, Instances returns the others together with an error that joins
// an [UnreadableError] for each of them. With any other error it returns no instances.
func (d *Discovery) Instances(ctx context.Context, name string) ([]Instance, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	dir := path.Join(d.setup.Path, name)
	l, err := list(ctx, d.setup.Conn, func() (watch.Found, error) { return watch.Listing(d.setup.Conn, dir) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, recipe.Fail("list", dir, err)
	}
	names := slices.Sorted(slices.Values(l.Children))
	found := make([]read, len(names))
	parallel(len(names), func(i int) {
		node := path.Join(dir, names[i])
		found[i] = readInstance(request.Read(ctx, d.setup.Conn, func() (f watch.Found, err error) {
			f.Data, f.Stat, err = request.Get(d.setup.Conn, node)
			return f, err
		}))
	})
	return collect(dir, names, found)
}

// collect sorts out what was read.
func collect(dir string, names []string, found []read) ([]Instance, error) {
	var instances []Instance
	var unreadable []error
	for i, f := range found {
		switch {
		case errors.Is(f.err, zk.ErrNoNode): // it has gone since the listing
		case f.err != nil && !f.told:
			return nil, recipe.Fail("read", path.Join(dir, names[i]), f.err)
		case f.err != nil:
			unreadable = append(unreadable, f.unreadable(path.Join(dir, names[i])))
		default:
			instances = append(instances, f.instance)
		}
	}
	return instances, errors.Join(unreadable...)
}

// parallelReads is how many instances are read at once.
const parallelReads = 16

// parallel calls f for 0 to n-1 and returns when all calls have.
func parallel(n int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, parallelReads) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// list repeats f, which lists the znode of a service, like request.Read. It returns
// ErrTooMany for a list that is larger than the connection accepts.
func list(ctx context.Context, conn *zk.Conn, f func() (watch.Found, error)) (watch.Found, error) {
	l, err := request.Read(ctx, conn, f)
	if errors.Is(err, zkerror.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	return l, err
}
