package cache

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Cache keeps znodes in memory. Its methods may be called from any goroutine.
// After its end reads return what memory was then.
type Cache struct {
	memory
	path    string
	events  chan Event
	filled  chan struct{} // closed when first filled
	done    chan struct{} // closed when the owner has ended
	closing chan struct{} // closed by Close
	once    sync.Once
	asked   *mailbox[*caller] // of Sync
}

// New begins to keep the znode at path, which need not exist, and as many levels
// below it as scope says. It sends no request itself. The cache must be closed.
// Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func New(conn *zk.Conn, path string, scope Scope, opts ...recipes.Option) (*Cache, error) {
	own := settings{concurrency: 64}
	s, err := setup.NewOwn(conn, path, &own, opts)
	if err == nil {
		err = own.check(scope)
	}
	if err != nil {
		return nil, err
	}
	c := &Cache{
		memory: memory{root: newZnode(nil, path)}, path: path, events: make(chan Event),
		filled: make(chan struct{}), done: make(chan struct{}), closing: make(chan struct{}),
		asked: newMailbox[*caller](),
	}
	go newOwner(c, s, own, scope).run()
	return c, nil
}

// Events tells what has changed in memory, beginning with a Created for each znode
// found at first. Nobody needs to read it: what was not received is held in a
// bounded queue, in which a later change of a znode replaces an earlier one. It is
// closed when the cache ends; what was not received by then is dropped.
func (c *Cache) Events() <-chan Event { return c.events }

// Filled is closed when everything that was there has been read once, a path that
// does not exist included. It is not closed when the cache ends before.
func (c *Cache) Filled() <-chan struct{} { return c.filled }

// Done is closed when the cache has ended: Close has returned, or the owner of the
// connection has closed it. Err says which.
func (c *Cache) Done() <-chan struct{} { return c.done }

// Close ends the cache. It does not wait for ZooKeeper, only for the cache's
// goroutines, and may be called any number of times. Requests that are under way
// end when the connection answers them or breaks.
func (c *Cache) Close() {
	c.once.Do(func() { close(c.closing) })
	<-c.done
}

// Sync waits until memory has everything that ZooKeeper had committed when it was
// called, and tries again to read what has Err set because it is not permitted.
// It returns the context's cause when that ends first, or why the cache has ended.
// While ZooKeeper does not answer it waits.
func (c *Cache) Sync(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return setup.Fail("sync the cache of", c.path, err)
	}
	me := &caller{done: make(chan struct{})}
	c.asked.put(me)
	select {
	case <-me.done:
		return nil
	case <-ctx.Done():
		return setup.Fail("sync the cache of", c.path, context.Cause(ctx))
	case <-c.done:
		return setup.Fail("sync the cache of", c.path, c.Err())
	}
}
