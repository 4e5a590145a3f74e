package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// ErrOverLimit is returned if more leases are requested than the limit of the semaphore, so
// that they cannot be granted unless the limit is raised.
var ErrOverLimit = errors.New("lock: more leases requested than the limit")

// Semaphore is a counting semaphore that grants leases up to a limit. Like [Mutex], it does
// not keep local state: any number of values can refer to the semaphore at one path, and one
// value may be used by any number of goroutines.
//
// According to ZooKeeper's history, the leases of all holds never exceed the limit, unless
// the limit is changed. Leases are granted strictly in the order of arrival: a contender
// that requests many leases blocks later contenders, even if their requests would fit, and
// is not starved by them.
//
// When the limit is raised, waiting contenders are admitted immediately. When it is
// lowered, no lease is revoked, and no contender is admitted until the leases are within
// the new limit. A contender that was within the previous limit may still be granted its
// leases shortly after the change.
//
// An acquisition returns a [Hold] of any number of leases. Its token is unique, and later
// holds have greater tokens. But because several holds exist at a time, a resource that
// rejects tokens smaller than the greatest it has seen rejects all but the newest. Use
// [Hold.Multi] instead, or let the resource keep a set of valid tokens.
type Semaphore struct {
	lockQueue
	given    *givenLimit
	protocol *mutexProtocol // the protocol of Curator or kazoo; nil for the protocol of this library
}

// NewSemaphore returns the semaphore at path. It sends no request: the first contender creates the znode. limit
// applies as long as no limit is stored by [Semaphore.SetLimit]; until then all programs must use the same
// limit. If another limit is stored, the stored limit applies, and the Semaphore logs a warning when it learns
// the stored limit. Options are those of package recipes, [WithName], [WithCuratorLayout] and
// [WithSharedCount]. Errors: [recipes.ErrInvalid].
//
// By default, the semaphore uses the protocol of this library, in which an acquisition of a free lease takes
// two round trips. With [recipes.WithKazooLayout] it uses the protocol of kazoo's Semaphore, in which the first
// client stores its limit.
func NewSemaphore(conn *zk.Conn, path string, limit int, opts ...Option) (*Semaphore, error) {
	q, err := newQueue(conn, path, "semaphore", opts, withCuratorLayout, withSharedCount)
	if err != nil {
		return nil, err
	}
	if err := checkCount("limit", limit); err != nil {
		return nil, err
	}
	writable := false
	for _, a := range q.setup.ACL {
		writable = writable || a.Perms&zk.PermWrite != 0
	}
	if !writable {
		return nil, fmt.Errorf("%w: WithACL: contenders of a semaphore need the permission to write their znodes, by which they notify their followers", recipes.ErrInvalid)
	}
	s := &Semaphore{lockQueue: q, given: &givenLimit{limit: limit, log: q.setup.Log}}
	switch kazoo := q.setup.Layout == recipe.Kazoo; {
	case q.settings.curator && kazoo:
		return nil, fmt.Errorf("%w: lock.WithCuratorLayout: cannot be combined with WithKazooLayout", recipes.ErrInvalid)
	case q.settings.count != "" && !q.settings.curator:
		return nil, fmt.Errorf("%w: lock.WithSharedCount: requires WithCuratorLayout", recipes.ErrInvalid)
	case q.settings.curator:
		s.protocol, err = curatorProtocol(&s.lockQueue, s.given)
	case kazoo:
		s.protocol = kazooProtocol(&s.lockQueue, s.given)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// WithCuratorLayout selects the protocol of Curator's InterProcessSemaphoreV2 for a [Semaphore], so that Java
// programs can share the semaphore. All programs must use the same limit, which cannot be changed, unless they
// use [WithSharedCount]. An acquisition of a free lease takes four round trips.
func WithCuratorLayout() Option {
	return newOption(withCuratorLayout, func(s *settings) { s.curator = true })
}

// checkCount returns an error if n is not a valid number of leases. what is the meaning of n in the error.
func checkCount(what string, n int) error {
	if n < 1 || n > contender.MaxCount {
		return fmt.Errorf("%w: %s of %d: must be from 1 to %d", recipes.ErrInvalid, what, n, contender.MaxCount)
	}
	return nil
}

// Acquire acquires n leases together, and blocks until they are granted, also while ZooKeeper does not answer,
// and across sessions. If the context is done first, Acquire returns its cause immediately, and the contender's
// znode is removed in the background. It returns [ErrOverLimit] if n is greater than the limit, or if the limit
// falls below n while Acquire waits, at the latest when its contender reaches the head of the queue. Other
// errors: [recipes.ErrInvalid] if n is not positive, [recipes.ErrDeleted], [recipes.ErrConnClosed],
// [recipes.ErrPermission], [recipes.ErrNodeExhausted].
//
// A holder writes to its znode once while a contender waits behind it. The hold ends with
// ErrPermission unless the ACL permits this write.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	h, err := s.acquire(ctx, n, false)
	return h, s.setup.Fail("acquire", s.setup.Path, err)
}

// TryAcquire is like Acquire, but does not wait for other clients: it returns [ErrHeld] if
// fewer than n leases are free, or if another client waits for leases. TryAcquire still
// waits for ZooKeeper. With the protocols of Curator and kazoo it also returns ErrHeld
// while another client is being granted a lease.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	err := checkCount("number of leases", n)
	if err == nil {
		err = s.checkFree(ctx, n)
	}
	if err != nil {
		return nil, s.setup.Fail("try to acquire", s.setup.Path, err)
	}
	h, err := s.acquire(ctx, n, true)
	return h, s.setup.Fail("try to acquire", s.setup.Path, err)
}

// checkFree returns nil if n leases appear to be free, and ErrHeld or ErrOverLimit otherwise. It sends one
// request.
func (s *Semaphore) checkFree(ctx context.Context, n int) error {
	if s.protocol != nil {
		return s.protocol.checkFree(ctx, n)
	}
	children, err := connection.ListExisting(ctx, s.setup.Conn, s.setup.Path)
	if err != nil {
		return err
	}
	switch limit := s.limitOf(children); {
	case n > limit:
		return ErrOverLimit
	case leasesOf(children)+int64(n) > int64(limit):
		return ErrHeld
	}
	return nil
}

func (s *Semaphore) acquire(ctx context.Context, n int, noWait bool) (*Hold, error) {
	if err := checkCount("number of leases", n); err != nil {
		return nil, err
	}
	if s.protocol != nil {
		return s.protocol.acquire(ctx, n, noWait)
	}
	return s.acquisition(n, noWait).wait(ctx)
}

// acquisition describes an acquisition of n leases with the protocol of this library.
func (s *Semaphore) acquisition(n int, noWait bool) acquisition {
	admit := func(l contender.Listing) contender.Admission {
		if limit, _, stored := storedLimit(l.Names); stored {
			s.given.warnIfDifferent(limit)
		}
		return capacity{n, s.given.limit}.admit(l)
	}
	cfg := s.setup.Contender(contender.Config{Naming: contender.CuratorLease, Policy: contender.Policy{Admit: admit}})
	cfg.Prefix, cfg.Data = leasePrefix(n), s.data
	return acquisition{setup: s.setup, cfg: cfg, noWait: noWait}
}
