package cache

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	setup "github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Cache keeps znodes in memory. Its methods may be called from any goroutine. After the
// cache has ended, reads return its last state.
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

// New returns a cache of the znode at path, which does not need to exist, and of as many
// levels below it as scope specifies. It does not wait for ZooKeeper; see [Cache.Filled].
// The cache must be closed. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
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

// Events returns the channel of changes, starting with a Created event for each znode that
// was found first. The program does not have to receive them: events are held in a bounded
// queue, in which a later change of a znode replaces an earlier one. The channel is closed
// when the cache ends, and pending events are dropped.
func (c *Cache) Events() <-chan Event { return c.events }

// Filled returns a channel that is closed when all existing znodes have been read once,
// also if path does not exist. It is not closed if the cache ends before.
func (c *Cache) Filled() <-chan struct{} { return c.filled }

// Done returns a channel that is closed when the cache has ended, because Close has
// returned or the owner of the connection has closed it. Err returns which.
func (c *Cache) Done() <-chan struct{} { return c.done }

// Close ends the cache. It waits for the cache's goroutines but not for ZooKeeper, and may
// be called repeatedly. Requests in flight end when the connection answers them or breaks.
func (c *Cache) Close() {
	c.once.Do(func() { close(c.closing) })
	<-c.done
}

// Sync blocks until the cache contains everything that ZooKeeper had committed when Sync
// was called, also while ZooKeeper does not answer. It retries reads of znodes whose Err is
// a permission error. It returns the context's cause if the context is done first, and the
// error of the cache if the cache has ended.
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
