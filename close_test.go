package leaderelection_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// closes is the number of rounds of TestClose_Successor.
var closes = flag.Int("closes", 100, "number of connections that TestClose_Successor closes")

// closeWatcher is a network connection that calls closing before it writes the packet with which the
// client library ends the session.
type closeWatcher struct {
	net.Conn
	closing func()
}

func (c *closeWatcher) Write(b []byte) (int, error) {
	const closeSession = -11
	if len(b) == 12 && int32(binary.BigEndian.Uint32(b[8:])) == closeSession {
		c.closing()
	}
	return c.Conn.Write(b)
}

// granted is a leadership, a lock, an item of a queue and so on.
type granted interface {
	Err() error
	Context() context.Context
}

// TestClose_GrantsEndFirst fails if a grant is valid when the program's Close ends the session, or if
// its reason is not the Close.
func TestClose_GrantsEndFirst(t *testing.T) {
	obtain := map[string]func(context.Context, *zk.Conn) (granted, error){
		"leadership": func(_ context.Context, conn *zk.Conn) (granted, error) {
			e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
			if err != nil {
				return nil, err
			}
			go e.ElectLeader()
			for s := range e.Status() {
				if s.Leadership != nil {
					return s.Leadership, nil
				}
			}
			return nil, e.ElectLeader()
		},
		"lock": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			m, err := lock.NewMutex(conn, "/lock")
			if err != nil {
				return nil, err
			}
			return m.Lock(ctx)
		},
		"several locks": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			a, err := lock.NewMutex(conn, "/lock-a")
			if err != nil {
				return nil, err
			}
			b, err := lock.NewMutex(conn, "/lock-b")
			if err != nil {
				return nil, err
			}
			both, err := lock.NewMultiLock(a, b)
			if err != nil {
				return nil, err
			}
			return both.Lock(ctx)
		},
		"semaphore": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			s, err := lock.NewSemaphore(conn, "/semaphore", 3)
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 2)
		},
		"Curator's semaphore": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			s, err := lock.NewSemaphore(conn, "/curator", 3, lock.WithCuratorLayout())
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 2)
		},
		"item": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			q, err := queue.New(conn, "/queue")
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = q.Close() })
			if err := q.Put(ctx, []byte("x")); err != nil {
				return nil, err
			}
			return q.Take(ctx)
		},
		"barrier": func(ctx context.Context, conn *zk.Conn) (granted, error) {
			d, err := barrier.NewDouble(conn, "/barrier", 1)
			if err != nil {
				return nil, err
			}
			return d.Enter(ctx)
		},
	}
	for name, f := range obtain {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t)
				var g granted
				var atClose []error
				conn, _, err := zkdial.Connect([]string{srv.Name()}, timeout,
					zkdial.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
						conn, err := srv.Dialer()(network, address, timeout)
						return &closeWatcher{conn, func() { atClose = append(atClose, context.Cause(g.Context()), g.Err()) }}, err
					}))
				require.NoError(t, err)
				g, err = f(t.Context(), conn)
				require.NoError(t, err)
				time.Sleep(2 * timeout)
				require.NoError(t, g.Err())
				synctest.Wait()
				conn.Close()
				require.Len(t, atClose, 2, "the session was not ended")
				require.ErrorIs(t, atClose[0], leaderelection.ErrConnClosed, "the context is not done")
				require.ErrorIs(t, atClose[1], leaderelection.ErrConnClosed)
				time.Sleep(timeout)
			})
		})
	}
}

// TestClose_Successor fails if the successor of a leader whose connection is closed leads while the
// former leader is not notified, over the network.
func TestClose_Successor(t *testing.T) {
	srv := zktest.Start(t)
	join := func(node string) (*zk.Conn, *leaderelection.Election) {
		conn, _, err := zkdial.Connect([]string{srv.Addr()}, 20*time.Second)
		require.NoError(t, err)
		e, err := leaderelection.NewElection(conn, node, leaderelection.WithCreateNode())
		require.NoError(t, err)
		go e.ElectLeader()
		return conn, e
	}
	next := func(e *leaderelection.Election, role leaderelection.Role) leaderelection.Status {
		for s := range e.Status() {
			if s.Role == role && (s.Leadership != nil || s.NowFollowing != "") {
				return s
			}
		}
		require.Fail(t, "the candidacy is over", "%v", e.ElectLeader())
		return leaderelection.Status{}
	}
	for i := range *closes {
		node := fmt.Sprintf("/election%d", i)
		conn, leader := join(node)
		old := next(leader, leaderelection.Leader).Leadership
		other, successor := join(node)
		next(successor, leaderelection.Follower)
		go conn.Close()
		next(successor, leaderelection.Leader)
		require.ErrorIs(t, old.Err(), leaderelection.ErrConnClosed, "round %d", i)
		require.ErrorIs(t, context.Cause(old.Context()), leaderelection.ErrConnClosed)
		require.NoError(t, successor.Resign())
		other.Close()
	}
}

// TestConnect_HangsAfterFailedWrite fails if candidates and locks wait indefinitely on a connection of
// zk.Connect that never connects again. The client library hangs if a write fails while credentials are
// sent again; here its event callback blocks at the same point, and can be released. It also fails if
// the connection cannot be used after that.
func TestConnect_HangsAfterFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		release := make(chan struct{})
		unblock := sync.OnceFunc(func() { close(release) })
		defer unblock()
		var armed atomic.Bool
		conn, _, err := srv.Connect(timeout, zk.WithEventCallback(func(e zk.Event) {
			if e.State == zk.StateDisconnected && armed.Load() {
				<-release
			}
		}))
		require.NoError(t, err)
		e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
		require.NoError(t, err)
		var reason error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			reason = e.ElectLeader()
		}()
		m, err := lock.NewMutex(conn, "/lock")
		require.NoError(t, err)
		hold, err := m.Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * timeout)
		armed.Store(true)
		srv.DropConnections()
		time.Sleep(2 * timeout)
		require.Equal(t, leaderelection.Suspended, e.Current().Role)
		time.Sleep(4 * timeout)
		<-ended
		require.ErrorIs(t, reason, leaderelection.ErrConnClosed)
		require.ErrorContains(t, reason, "open a new connection")
		require.Error(t, hold.Err())
		_, err = m.Lock(t.Context())
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.ErrorContains(t, err, "open a new connection")
		_ = hold.Release()
		armed.Store(false)
		unblock()
		time.Sleep(2 * timeout)
		hold, err = m.Lock(t.Context())
		require.NoError(t, err, "the callback has returned")
		require.NoError(t, hold.Release())
		conn.Close()
	})
}
