package cache

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Cache keeps znodes in memory. Its methods may be called from any goroutine. After the
// cache has ended, reads return its last state.
type Cache struct {
	tree
	conn      *zk.Conn
	path      string
	events    chan Event
	filled    chan struct{} // closed when all znodes were read for the first time after New
	done      chan struct{} // closed when the updater has ended
	closing   chan struct{} // closed by Close, which makes the updater end
	closeOnce sync.Once
	syncCalls *mailbox[*syncCall]
}

// New returns a cache of the znode at path, which does not need to exist and may be the root, and of as many
// levels below it as scope specifies. It does not wait for ZooKeeper; see [Cache.Filled].
// The cache must be closed. Errors: [recipes.ErrInvalid].
func New(conn *zk.Conn, path string, scope Scope, opts ...Option) (*Cache, error) {
	u, err := newCache(conn, path, scope, opts)
	if err != nil {
		return nil, err
	}
	go u.run()
	return u.cache, nil
}

// newCache returns the updater of a new cache, and does not start the goroutine of the updater.
func newCache(conn *zk.Conn, path string, scope Scope, opts []Option) (*updater, error) {
	options := cacheOptions{concurrency: 64}
	s, err := recipe.NewReader(conn, path, &options, opts, Option.ApplyCache)
	if err == nil {
		err = options.validate(scope)
	}
	if err != nil {
		return nil, err
	}
	c := &Cache{
		tree: tree{root: newNode(nil, path)}, conn: conn, path: path, events: make(chan Event),
		filled: make(chan struct{}), done: make(chan struct{}), closing: make(chan struct{}),
		syncCalls: newMailbox[*syncCall](),
	}
	return newUpdater(c, s, options, scope), nil
}

// Events returns the channel of changes, starting with a Created event for each znode that the cache finds while it
// is filled. The program does not have to receive them: events are held in a bounded queue, in which a later change
// of a znode replaces an earlier one. The channel is closed when the cache ends, and pending events are dropped.
func (c *Cache) Events() <-chan Event { return c.events }

// Filled returns a channel that is closed when all existing znodes have been read once,
// also if path does not exist. It is not closed if the cache ends before.
func (c *Cache) Filled() <-chan struct{} { return c.filled }

// Done returns a channel that is closed when the cache has ended, because Close was called
// or the owner of the connection has closed it. Err returns the reason.
func (c *Cache) Done() <-chan struct{} { return c.done }

// Close ends the cache, and returns nil. It waits for the cache's goroutines but not for
// ZooKeeper, and may be called repeatedly. Requests in flight end when the connection answers
// them or breaks.
func (c *Cache) Close() error {
	c.closeOnce.Do(func() { close(c.closing) })
	<-c.done
	return nil
}

// Sync blocks until the cache contains everything that ZooKeeper had committed when Sync was called, and continues
// to wait while ZooKeeper does not answer. It retries reads of znodes whose Err is a permission error. It returns
// the context's cause if the context is done first, and the error of the cache if the cache has ended.
func (c *Cache) Sync(ctx context.Context) error {
	err := context.Cause(ctx)
	if err == nil {
		call := &syncCall{done: make(chan struct{})}
		c.syncCalls.addItems(call)
		select {
		case <-call.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.done:
			err = c.Err()
		}
	}
	return recipe.Fail(c.conn, "sync the cache of", c.path, err)
}
