package queue_test

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// kind is a way to use a queue. The tests of this package run with each kind, by its public API, because they must
// pass for all users of a queue.
type kind struct {
	name string
	base string // the names of contenders of other programs end with base and a number
	data string // the data of the contenders' znodes
	// resumes means that a contender whose lease has expired keeps its position, and has its turn again with the
	// next lease. Otherwise the contender leaves.
	resumes bool
	left    error // the error of a turn that leave has ended
	noTurn  error // the error of a transaction after the turn
	// prepare sets the functions of a client, which join and leave the queue.
	prepare func(c *client, session time.Duration)
}

// hasGUIDs reports whether the names of contenders contain a GUID.
func (k kind) hasGUIDs() bool { return k.name != prefix.name }

var (
	election = kind{"election", "-latch-", "name-not-provided", true, leaderelection.ErrResigned, leaderelection.ErrNotLeader, prepareElection()}
	prefix   = kind{
		"election with a name prefix", "-latch-", "name-not-provided", true, leaderelection.ErrResigned, leaderelection.ErrNotLeader,
		prepareElection(leaderelection.WithNamePrefix("n_")),
	}
	mutex = kind{
		"mutex", "-lock-", "", false, recipes.ErrReleased, recipes.ErrNotHeld,
		prepareLock(func(c *client, session recipes.Option) (acquire, error) {
			m, err := lock.NewMutex(c.conn, dir, session)
			return m.Lock, err
		}),
	}
	semaphore = kind{
		"semaphore", "-lease-", "", false, recipes.ErrReleased, recipes.ErrNotHeld,
		prepareLock(func(c *client, session recipes.Option) (acquire, error) {
			s, err := lock.NewSemaphore(c.conn, dir, 1, session)
			return func(ctx context.Context) (*lock.Hold, error) { return s.Acquire(ctx, 1) }, err
		}),
	}

	all = []kind{election, prefix, mutex, semaphore}
	// exclusive contains the kinds whose contenders watch only the two contenders before them.
	exclusive = []kind{election, mutex}
)

// grant is a leadership or a hold of a lock.
type grant interface {
	Token() int64
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Multi(ops ...any) ([]zk.MultiResponse, error)
}

// client is a contender: a candidate of an election, or a call that acquires a lock.
type client struct {
	h    *harness
	conn *zk.Conn

	start  func()       // joins the queue; does not block
	giveUp func()       // cancels the context of the election or of the call
	leave  func() error // resigns, releases the lock, or cancels the call that acquires the lock
	// endElection ends the election for all candidates. It is nil for locks.
	endElection func() error

	mu       sync.Mutex
	grant    grant // the newest grant, or nil
	returned bool  // ElectLeader or the call that acquires the lock has returned
	err      error // the error of ElectLeader or of the call
}

// prepare returns a contender that has not joined.
func (h *harness) prepare(conn *zk.Conn) *client { return h.prepareFor(conn, timeout) }

// prepareFor is like prepare. session is the session timeout that the contender assumes.
func (h *harness) prepareFor(conn *zk.Conn, session time.Duration) *client {
	h.Helper()
	c := &client{h: h, conn: conn}
	h.kind.prepare(c, session)
	h.clients = append(h.clients, c)
	return c
}

// join starts a contender and waits until all goroutines are blocked.
func (h *harness) join(conn *zk.Conn) *client {
	h.Helper()
	c := h.prepare(conn)
	c.start()
	h.advance(0)
	return c
}

// joinNew is like join, with a new connection.
func (h *harness) joinNew() *client {
	h.Helper()
	return h.join(h.connect())
}

func prepareElection(options ...leaderelection.Option) func(*client, time.Duration) {
	return func(c *client, session time.Duration) {
		ctx, cancel := context.WithCancel(context.Background())
		e, err := leaderelection.NewElection(c.conn, dir, append([]leaderelection.Option{
			leaderelection.WithSessionTimeout(session), leaderelection.WithContext(ctx),
		}, options...)...)
		require.NoError(c.h, err)
		c.giveUp, c.leave, c.endElection = cancel, e.Resign, e.EndElection
		c.start = func() {
			go func() { c.end(e.ElectLeader()) }()
			go func() {
				for s := range e.Status() {
					if s.Leadership != nil {
						c.begin(s.Leadership)
					}
				}
			}()
		}
	}
}

type acquire func(context.Context) (*lock.Hold, error)

func prepareLock(create func(*client, recipes.Option) (acquire, error)) func(*client, time.Duration) {
	return func(c *client, session time.Duration) {
		ctx, cancel := context.WithCancel(context.Background())
		acquire, err := create(c, recipes.WithSessionTimeout(session))
		require.NoError(c.h, err)
		c.giveUp = cancel
		c.leave = func() error {
			if g := c.newest(); g != nil {
				return g.(*lock.Hold).Release()
			}
			cancel()
			return nil
		}
		c.start = func() {
			go func() {
				hold, err := acquire(ctx)
				if hold != nil {
					c.begin(hold)
				}
				c.end(err)
			}()
		}
	}
}

// begin records that a turn of the contender has begun.
func (c *client) begin(g grant) {
	c.mu.Lock()
	c.grant = g
	c.mu.Unlock()
	x := &turn{client: c, grant: g, from: time.Now()}
	c.h.mu.Lock()
	c.h.turns = append(c.h.turns, x)
	c.h.mu.Unlock()
	go func() {
		<-g.Done()
		c.h.mu.Lock()
		defer c.h.mu.Unlock()
		x.to = time.Now()
	}()
}

// end records the result of ElectLeader or of the call that acquires the lock.
func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned, c.err = true, err
}

// newest returns the grant of the newest turn, or nil.
func (c *client) newest() grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grant
}

// requireTurn requires that it is the contender's turn, and returns the grant.
func (c *client) requireTurn() grant {
	c.h.Helper()
	g := c.newest()
	require.NotNil(c.h, g, "it was never the contender's turn: %v", c.result())
	require.NoError(c.h, g.Err())
	return g
}

// requireSoleHolder requires that it is the contender's turn, and that its znode is the only znode of a contender.
func (c *client) requireSoleHolder() {
	c.h.Helper()
	token := c.requireTurn().Token()
	line := c.h.contenders()
	require.Len(c.h, line, 1)
	stat := c.h.statOf(line[0])
	require.Equal(c.h, c.conn.SessionID(), stat.EphemeralOwner)
	require.Equal(c.h, stat.Czxid, token)
}

// requireWaits requires that the contender is waiting and that it was never its turn.
func (c *client) requireWaits() {
	c.h.Helper()
	require.Nil(c.h, c.newest())
	require.NoError(c.h, c.result())
	c.mu.Lock()
	defer c.mu.Unlock()
	require.False(c.h, c.returned)
}

// result returns the result of ElectLeader or of the call that acquires the lock.
func (c *client) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// requireLeftBecause requires that the contender has left because of an error.
func (c *client) requireLeftBecause(want error) {
	c.h.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.True(c.h, c.returned)
	if _, held := c.grant.(*lock.Hold); held {
		require.ErrorIs(c.h, c.grant.Err(), want)
	} else {
		require.ErrorIs(c.h, c.err, want)
	}
}

// requireLeaves requires that leave returns no error, so that the servers have confirmed the removal.
func (c *client) requireLeaves() {
	c.h.Helper()
	require.NoError(c.h, c.leave())
	c.h.advance(0)
}

// session returns how long the servers wait until they expire the session of the contender.
func (c *client) session() time.Duration {
	c.h.Helper()
	return bubble.Session(c.h, c.h.ensemble, c.conn).ExpiresIn
}

// requireExpires requires that the turn of a contender that cannot renew its lease from now on ends when the lease
// expires, half a session timeout after the client has sent the last acknowledged check.
func (c *client) requireExpires() {
	c.h.Helper()
	g := c.requireTurn()
	left := time.Until(g.Deadline())
	require.LessOrEqual(c.h, left, timeout/2)
	require.Greater(c.h, left, timeout/2-timeout/8-timeout/32, "the last check was too long ago")
	require.Greater(c.h, c.session()-left, timeout/8, "the session expires soon after the lease")
	done := bubble.Async(func() time.Time { <-g.Done(); return time.Now() })
	c.h.advance(left - 1)
	require.Same(c.h, g, c.requireTurn())
	c.h.advance(1)
	require.Equal(c.h, time.Now(), <-done)
	require.ErrorIs(c.h, g.Err(), leaderelection.ErrLeaseExpired)
}
