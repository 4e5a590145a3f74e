package lock

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// mutexProtocol implements the semaphore protocols of Curator and kazoo: a client that holds a mutex
// creates a znode for each lease, while the number of these znodes is below the limit.
type mutexProtocol struct {
	*lockQueue
	given *givenLimit

	mutex, leases         string // the paths of the mutex and of the leases
	mutexNames, leaseName contender.Naming
	makeMutex, makeLeases func(ctx context.Context) error
	// stored is true if the limit is in the data of the znode leases. If stored is false and count is nil, the
	// limit given to the constructor applies.
	stored bool
	count  *value.Value[int] // the SharedCount of WithSharedCount; nil without this option
}

// curatorProtocol returns the protocol of Curator's InterProcessSemaphoreV2.
func curatorProtocol(q *lockQueue, given *givenLimit) (c *mutexProtocol, err error) {
	c = &mutexProtocol{
		lockQueue: q, given: given, mutex: path.Join(q.setup.Path, "locks"), leases: path.Join(q.setup.Path, "leases"),
		mutexNames: contender.CuratorLock, leaseName: contender.CuratorLease,
	}
	c.makeMutex = func(ctx context.Context) error { return c.makeBelow(ctx, c.mutex) }
	c.makeLeases = func(ctx context.Context) error { return c.makeBelow(ctx, c.leases) }
	if q.settings.count != "" {
		c.count, err = newSharedCount(q.setup, q.settings.count)
	}
	return c, err
}

// makeBelow creates the semaphore's znode and its child dir, as containers.
func (c *mutexProtocol) makeBelow(ctx context.Context, dir string) error {
	if err := c.setup.MakeDir(ctx); err != nil {
		return err
	}
	return connection.MakeZnode(ctx, c.setup.Conn, dir, c.setup.ACL, true)
}

// kazooProtocol returns the protocol of kazoo's Semaphore. Its znodes must not be containers, because
// kazoo's clients create them once and fail after they have been removed.
func kazooProtocol(q *lockQueue, given *givenLimit) *mutexProtocol {
	c := &mutexProtocol{
		lockQueue: q, given: given, mutex: q.setup.Path + "-__lock__", leases: q.setup.Path,
		mutexNames: contender.Kazoo, leaseName: contender.KazooLease, stored: true,
	}
	c.makeMutex = func(ctx context.Context) error {
		return connection.MakeZnode(ctx, c.setup.Conn, c.mutex, c.setup.ACL, false)
	}
	c.makeLeases = c.makeWithLimit
	return c
}

// makeWithLimit creates the parent of the leases, with the limit as its data.
func (c *mutexProtocol) makeWithLimit(ctx context.Context) error {
	for {
		err := connection.Retry(ctx, c.setup.Conn, func() error {
			_, err := c.setup.Conn.Create(c.leases, []byte(strconv.Itoa(c.given.limit)), zk.FlagPersistent, c.setup.ACL)
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := connection.MakeZnode(ctx, c.setup.Conn, path.Dir(c.leases), c.setup.ACL, false); err != nil {
			return err
		}
	}
}

// effectiveLimit returns the stored limit, or the limit given to the constructor if no limit is stored. Like
// kazoo, it ignores data that is not a number.
func (c *mutexProtocol) effectiveLimit(ctx context.Context) (int, error) {
	limit, err := c.readLimit(ctx)
	if connection.IsNoNode(ctx, err) {
		return c.given.limit, nil
	}
	return limit, err
}

// currentLimit is like effectiveLimit, but calls Sync first, so that the result is not older than the call.
func (c *mutexProtocol) currentLimit(ctx context.Context) (int, error) {
	at := c.leases
	if c.count != nil {
		at = c.settings.count
	}
	if c.stored || c.count != nil {
		if err := c.setup.Sync(ctx, at); err != nil {
			return 0, err
		}
	}
	return c.effectiveLimit(ctx)
}

// readLimit returns the limit, or zk.ErrNoNode if the protocol stores the limit and no client has stored a
// limit yet.
func (c *mutexProtocol) readLimit(ctx context.Context) (int, error) {
	switch {
	case c.count != nil:
		return c.readCount(ctx)
	case !c.stored:
		return c.given.limit, nil
	}
	data, _, err := connection.ReadData(ctx, c.setup.Conn, c.leases)
	if err != nil {
		return 0, err
	}
	if limit, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
		c.given.warnIfDifferent(limit)
		return limit, nil
	}
	return c.given.limit, nil
}

// agreeOnLimit is like effectiveLimit, but stores the limit of the constructor if no limit is stored.
func (c *mutexProtocol) agreeOnLimit(ctx context.Context) (int, error) {
	for {
		limit, err := c.readLimit(ctx)
		if !errors.Is(err, zk.ErrNoNode) {
			return limit, err
		}
		if c.count != nil {
			err = c.createCount(ctx)
		} else {
			err = c.makeLeases(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
}

// checkFree returns nil if n leases appear to be free, and ErrHeld or ErrOverLimit otherwise. It lists the leases
// and reads the limit concurrently.
func (c *mutexProtocol) checkFree(ctx context.Context, n int) error {
	asked := connection.Start(func() (int, error) { return c.effectiveLimit(ctx) })
	taken, err := connection.ListExisting(ctx, c.setup.Conn, c.leases)
	limit := <-asked
	switch {
	case err != nil:
		return err
	case limit.Err != nil:
		return limit.Err
	case n > limit.Value:
		return ErrOverLimit
	case len(taken)+n > limit.Value:
		return ErrHeld
	}
	return nil
}

// config returns the configuration of a contender in dir, which makeDir creates.
func (c *mutexProtocol) config(dir string, names contender.Naming, makeDir func(context.Context) error) *queue.Config {
	cfg := c.setup.Contender(contender.Config{Dir: dir, Naming: names})
	cfg.MakeDir, cfg.Data = makeDir, c.data
	return cfg
}
