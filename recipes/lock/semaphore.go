package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// ErrOverLimit: more leases are asked for than the limit of the semaphore, so that
// they cannot be had before somebody raises it.
var ErrOverLimit = errors.New("lock: more leases than the limit")

// Semaphore gives leases, as many at a time as its limit. Like [Mutex] it has no
// state of its own: any number of values stand for the semaphore at one path, and
// one value serves any number of goroutines.
//
// In what ZooKeeper has committed, the leases of all grants that stand are never
// more than the limit, while that stays the same. Grants are given strictly in the
// order in which contenders have come: one that asks for many leases keeps those
// behind it waiting, also those that would fit, and is not starved by them.
//
// A limit that is raised lets in at once who waits. One that is lowered takes no
// lease away: nobody is let in until there are fewer than the new limit. A
// contender that was within a limit while it was in force may be granted its leases
// a moment later.
//
// A grant is a [Hold], of any number of leases. Its token tells it from all others,
// and later grants have greater tokens; but since several hold at once, a resource
// that refuses tokens smaller than the greatest it has seen refuses all of them but
// the newest. Use [Hold.Multi], or keep a set of tokens.
type Semaphore struct {
	at      *setup.Setup
	limit   int
	company *company // other libraries' protocol; nil for the own
}

// NewSemaphore makes the semaphore at path. Its znode is created with the first
// contender. limit counts while none is stored by [Semaphore.SetLimit]; until then
// all programs must have given the same. It sends no request. Errors:
// [recipes.ErrNilConn], [recipes.ErrInvalidPath], [recipes.ErrInvalidOption].
//
// Contenders have no lock besides, and a free lease costs two round trips. Other
// libraries have no such semaphore: with [recipes.Kazoo] it follows the
// protocol of kazoo's Semaphore, as [NewCuratorSemaphore] does Curator's.
func NewSemaphore(conn *zk.Conn, path string, limit int, opts ...recipes.Option) (*Semaphore, error) {
	s, err := newSemaphore(conn, path, limit, opts)
	if err == nil && s.at.Layout == recipes.Kazoo {
		s.company = kazooCompany(s.at, limit)
	}
	return s, err
}

// NewCuratorSemaphore makes the semaphore at path with the protocol of Curator's
// InterProcessSemaphoreV2, so that Java programs can contend for it. All programs
// must have given the same limit, and it cannot be changed. A free lease costs
// four round trips. Errors are those of NewSemaphore.
func NewCuratorSemaphore(conn *zk.Conn, path string, limit int, opts ...recipes.Option) (*Semaphore, error) {
	s, err := newSemaphore(conn, path, limit, opts)
	if err != nil {
		return nil, err
	}
	if s.at.Layout != recipes.Curator {
		return nil, fmt.Errorf("%w: WithLayout: this semaphore is Curator's", recipes.ErrInvalidOption)
	}
	s.company = curatorCompany(s.at, limit)
	return s, nil
}

func newSemaphore(conn *zk.Conn, path string, limit int, opts []recipes.Option) (*Semaphore, error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	if err := checkCount("limit", limit); err != nil {
		return nil, err
	}
	writable := false
	for _, a := range s.ACL {
		writable = writable || a.Perms&zk.PermWrite != 0
	}
	if !writable {
		return nil, fmt.Errorf("%w: WithACL: nobody may write the znodes, which tell others by it that they are next", recipes.ErrInvalidOption)
	}
	return &Semaphore{at: s, limit: limit}, nil
}

func checkCount(what string, n int) error {
	if n < 1 || n > line.MaxWeight {
		return fmt.Errorf("%w: a %s of %d", recipes.ErrInvalidOption, what, n)
	}
	return nil
}

// Acquire waits until n leases are granted, all together. When the context ends
// before, Acquire returns its cause at once, and its place in line is given up in
// the background. Where n is more than the limit, or the limit falls below n
// meanwhile, the error is [ErrOverLimit]: at once where that can be seen, at the
// latest when it would be this one's turn. Other errors:
// [recipes.ErrInvalidOption] for an n below 1, [recipes.ErrSessionExpired],
// [recipes.ErrDeleted], [recipes.ErrConnClosed], [recipes.ErrPermission],
// [recipes.ErrNodeExhausted]. While ZooKeeper does not answer, Acquire waits.
//
// A holder that somebody waits behind writes its own znode once. If the ACL does
// not let it, its grant ends with ErrPermission.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	h, err := s.acquire(ctx, n, false)
	return h, setup.Fail("acquire", s.at.Path, refineLimit(err))
}

// TryAcquire is Acquire that does not wait for others: it returns [ErrHeld] where
// fewer than n leases are free, or somebody waits for leases. It does wait for
// ZooKeeper. With the protocols of Curator and kazoo it also returns ErrHeld where
// somebody else is being granted a lease at this moment.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	err := checkCount("number of leases", n)
	if err == nil {
		err = s.free(ctx, n)
	}
	if err != nil {
		return nil, setup.Fail("try to acquire", s.at.Path, err)
	}
	h, err := s.acquire(ctx, n, true)
	return h, setup.Fail("try to acquire", s.at.Path, refineLimit(err))
}

// free asks whether n leases could be had: one request.
func (s *Semaphore) free(ctx context.Context, n int) error {
	if s.company != nil {
		return s.company.free(ctx, n)
	}
	children, err := list(ctx, s.at.Conn, s.at.Path)
	if err != nil {
		return err
	}
	limit := s.limit
	if stored, _, ok := line.StoredLimit(children); ok {
		limit = stored
	}
	switch {
	case n > limit:
		return ErrOverLimit
	case line.Taken(children)+int64(n) > int64(limit):
		return ErrHeld
	}
	return nil
}

// list returns the children of dir, none where there is no dir.
func list(ctx context.Context, conn *zk.Conn, dir string) ([]string, error) {
	children, err := request.Read(ctx, conn, func() ([]string, error) {
		children, _, err := request.Children(conn, dir)
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return children, err
}

func (s *Semaphore) acquire(ctx context.Context, n int, once bool) (*Hold, error) {
	if err := checkCount("number of leases", n); err != nil {
		return nil, err
	}
	if s.company != nil {
		return s.company.acquire(ctx, n, once)
	}
	cfg := &line.Config{
		Conn: s.at.Conn, Dir: s.at.Path, Naming: line.CuratorLease, ACL: s.at.ACL, Timeout: s.at.Timeout,
		MakeDir: s.at.MakeDir, Room: &line.Room{Weight: n, Limit: s.limit}, Log: s.at.Log.With("semaphore", s.at.Path),
	}
	return contest{cfg: cfg, once: once}.wait(ctx)
}

// refineLimit gives the line's error about the limit its place among the errors of
// this package.
func refineLimit(err error) error {
	if errors.Is(err, line.ErrOverLimit) {
		return ErrOverLimit
	}
	return err
}
