package lock

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// mutexProtocol implements the semaphore protocols of Curator and kazoo: a client that holds a mutex
// creates a znode for each lease, while the number of these znodes is below the limit.
type mutexProtocol struct {
	setup *recipe.Setup
	given int // the constructor's limit

	mutex, leases         string // paths
	mutexNames, leaseName contender.Naming
	makeMutex, makeLeases func(ctx context.Context) error
	stored                bool         // the limit is in the data of leases
	reported              atomic.Int64 // the last stored limit of which a warning was logged
}

// curatorProtocol returns the protocol of Curator's InterProcessSemaphoreV2.
func curatorProtocol(s *recipe.Setup, limit int) *mutexProtocol {
	c := &mutexProtocol{
		setup: s, given: limit, mutex: path.Join(s.Path, "locks"), leases: path.Join(s.Path, "leases"),
		mutexNames: contender.CuratorLock, leaseName: contender.CuratorLease,
	}
	c.makeMutex = func(ctx context.Context) error { return c.makeBelow(ctx, c.mutex) }
	c.makeLeases = func(ctx context.Context) error { return c.makeBelow(ctx, c.leases) }
	return c
}

// makeBelow creates the semaphore's znode, and dir below it, as containers.
func (c *mutexProtocol) makeBelow(ctx context.Context, dir string) error {
	if err := c.setup.MakeDir(ctx); err != nil {
		return err
	}
	return connection.MakeZnode(ctx, c.setup.Conn, dir, c.setup.ACL, true)
}

// kazooProtocol returns the protocol of kazoo's Semaphore. Its znodes must not be containers, because
// kazoo's clients create them once and fail after they have been removed.
func kazooProtocol(s *recipe.Setup, limit int) *mutexProtocol {
	c := &mutexProtocol{
		setup: s, given: limit, mutex: s.Path + "-__lock__", leases: s.Path,
		mutexNames: contender.Kazoo, leaseName: contender.KazooLease, stored: true,
	}
	c.makeMutex = func(ctx context.Context) error {
		return connection.MakeZnode(ctx, c.setup.Conn, c.mutex, c.setup.ACL, false)
	}
	c.makeLeases = c.makeWithLimit
	return c
}

// makeWithLimit creates the znode of the leases, whose data is the limit.
func (c *mutexProtocol) makeWithLimit(ctx context.Context) error {
	for {
		err := connection.Retry(ctx, c.setup.Conn, func() error {
			_, err := c.setup.Conn.Create(c.leases, []byte(strconv.Itoa(c.given)), zk.FlagPersistent, c.setup.ACL)
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

// limit returns the stored limit if the protocol stores it, and that of the
// constructor otherwise. Like kazoo, it ignores data that is not a number.
func (c *mutexProtocol) limit(ctx context.Context) (int, error) {
	limit, err := c.readLimit(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return c.given, nil
	}
	return limit, err
}

// currentLimit is like limit, but the result is not older than the call.
func (c *mutexProtocol) currentLimit(ctx context.Context) (int, error) {
	if c.stored {
		if err := c.setup.Sync(ctx, c.leases); err != nil {
			return 0, err
		}
	}
	return c.limit(ctx)
}

func (c *mutexProtocol) readLimit(ctx context.Context) (int, error) {
	if !c.stored {
		return c.given, nil
	}
	data, err := connection.Read(ctx, c.setup.Conn, func() ([]byte, error) {
		data, _, err := connection.Get(c.setup.Conn, c.leases)
		return data, err
	})
	if err != nil {
		return 0, err
	}
	if limit, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
		if limit != c.given && c.reported.Swap(int64(limit)) != int64(limit) {
			c.setup.Log.Warn("the stored limit applies, which is not that of this program", "stored", limit, "given", c.given)
		}
		return limit, nil
	}
	return c.given, nil
}

// agreeOnLimit is like limit, but creates the znode of the leases, with the limit of the
// constructor, if it does not exist.
func (c *mutexProtocol) agreeOnLimit(ctx context.Context) (int, error) {
	for {
		limit, err := c.readLimit(ctx)
		if !errors.Is(err, zk.ErrNoNode) {
			return limit, err
		}
		if err := c.makeLeases(ctx); err != nil {
			return 0, err
		}
	}
}

// free returns nil if n leases appear to be free, and the reason otherwise. It lists the leases
// and reads the limit concurrently.
func (c *mutexProtocol) free(ctx context.Context, n int) error {
	asked := connection.Start(func() (int, error) { return c.limit(ctx) })
	taken, err := list(ctx, c.setup.Conn, c.leases)
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

func (c *mutexProtocol) config(dir string, names contender.Naming, makeDir func(context.Context) error) *queue.Config {
	cfg := c.setup.Contender(contender.Config{Dir: dir, Naming: names})
	cfg.MakeDir = makeDir
	return cfg
}
