package leaderelection_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestElectLeader_NoticesSessionExpiryByPolling checks that a candidate notices the expiry of its session
// within a 32nd of the session timeout by polling the state of the client. The client library also notifies
// watches, but can do so too late: here its event callback blocks.
func TestElectLeader_NoticesSessionExpiryByPolling(t *testing.T) {
	for _, position := range []string{"leader", "second", "third", "rejoining"} {
		runWithServers(t, position, 2, func(h *harness) {
			const blocked = time.Minute
			expired := &moment{}
			conn := h.connect(zk.WithEventCallback(func(e zk.Event) {
				if e.State == zk.StateExpired {
					expired.setNow()
					time.Sleep(blocked)
				}
			}))
			var options []leaderelection.Option
			for range map[string]int{"second": 1, "third": 2, "rejoining": 1}[position] {
				h.join(h.connect())
			}
			if position == "rejoining" {
				options = append(options, leaderelection.WithRejoin())
			}
			c := h.join(conn, options...)
			first := c.newestStatus()
			h.advance(time.Second + 60*time.Millisecond)
			session := conn.SessionID()
			h.whileDisconnected(conn, func() { assert.NoError(h, h.srv.ExpireSession(session)) })
			require.Equal(h, time.Now(), expired.time())
			require.Len(h, c.receivedStatuses(), 1)
			h.advance(timeout / 32)
			s := c.newestStatus()
			require.Greater(h, s.at, expired.time(), "it was not reported")
			switch position {
			case "rejoining":
				require.NoError(h, s.Err)
				require.Equal(h, leaderelection.Follower, s.Role)
				require.Empty(h, s.NowFollowing)
			default:
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
			}
			if position == "leader" {
				require.ErrorIs(h, first.Leadership.Err(), leaderelection.ErrSessionExpired)
			}
			h.advance(blocked)
		})
	}
}

// TestElectLeader_NoticesEndOfSessionIfEventsAreDropped checks that a leader notices that its session ends when
// the client library drops events that the program does not receive (samuel #153).
// Scenario 55 of docs/traps.md.
func TestElectLeader_NoticesEndOfSessionIfEventsAreDropped(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, events, err := h.ensemble.ConnectFrom(0, timeout)
		require.NoError(h, err)
		h.advance(0)
		c, next := h.join(conn), h.join(h.connect())
		for range 5 {
			h.eachServer(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			h.advance(timeout / 5)
		}
		require.Len(h, events, cap(events))
		l := c.requireLeads()
		h.advance(timeout/4 + shortTime)
		h.disconnect(conn)
		h.requireSuspendedInTime(c, l)
		h.advance(h.serverSession(c).ExpiresIn)
		next.requireLeads()
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// TestElectLeader_DeletesZnodeOfOldSessionOnReconnect checks that a candidate that gets a new session when it
// reconnects, as from ClickHouse Keeper, deletes the znode of its old session, so that the follower does not
// wait until the old session expires.
func TestElectLeader_DeletesZnodeOfOldSessionOnReconnect(t *testing.T) {
	for name, rejoins := range map[string]bool{"ends": false, "rejoins": true} {
		runWithServers(t, name, 1, func(h *harness) {
			var options []leaderelection.Option
			if rejoins {
				options = append(options, leaderelection.WithRejoin())
			}
			conn := h.dial()
			leader := h.join(conn, options...)
			h.advance(time.Second)
			old := leader.requireLeads()
			follower := h.join(h.dial(), options...)
			h.advance(10 * time.Second)
			h.srv.DropConnections(conn.SessionID())
			start := time.Now()
			<-old.Done()
			h.advance(10 * time.Second)
			follower.requireLeads()
			// The limit includes the second for which the client library waits before it connects to the next
			// server.
			require.Less(h, follower.firstTimeOf(leaderelection.Leader).Sub(start), 1500*time.Millisecond)
			follower.resign()
			if rejoins {
				h.advance(time.Second)
				leader.requireLeads()
			} else {
				require.ErrorIs(h, leader.requireOver(), leaderelection.ErrSessionExpired)
			}
			require.NoError(h, leader.Resign())
		}, zktest.WithoutReattach())
	}
}

// grantOfSession is something that ends with the session: a leadership, a hold of a lock,
// an item of a queue and so on.
type grantOfSession interface {
	Err() error
	Context() context.Context
}

// TestConnClose_EndsLeadershipsAndLocksBeforeSession checks that a leadership, a lock and each other grant of a session has
// ended with ErrConnClosed before Close of the connection ends the session.
func TestConnClose_EndsLeadershipsAndLocksBeforeSession(t *testing.T) {
	obtain := map[string]func(context.Context, *zk.Conn) (grantOfSession, error){
		"leadership": func(_ context.Context, conn *zk.Conn) (grantOfSession, error) {
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
		"lock": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
			m, err := lock.NewMutex(conn, "/lock")
			if err != nil {
				return nil, err
			}
			return m.Lock(ctx)
		},
		"several locks": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
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
		"semaphore": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
			s, err := lock.NewSemaphore(conn, "/semaphore", 3)
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 2)
		},
		"Curator's semaphore": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
			s, err := lock.NewSemaphore(conn, "/curator", 3, lock.WithCuratorLayout())
			if err != nil {
				return nil, err
			}
			return s.Acquire(ctx, 2)
		},
		"item": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
			q, err := queue.New(conn, "/queue")
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = q.Close() })
			if _, err := q.Put(ctx, []byte("x")); err != nil {
				return nil, err
			}
			return q.Take(ctx)
		},
		"barrier": func(ctx context.Context, conn *zk.Conn) (grantOfSession, error) {
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
				var g grantOfSession
				var atClose []error
				conn, _, err := zkdial.Connect([]string{srv.Name()}, timeout,
					zkdial.WithDialer(bubble.WatchClose(srv.Dialer(), func() {
						atClose = append(atClose, context.Cause(g.Context()), g.Err())
					})))
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

// TestHungConnection_EndsCandidaciesAndLocks checks that candidates and locks on a connection of zk.Connect
// that hangs end instead of waiting indefinitely, and that the connection is usable after it continues. The
// client library hangs if a write fails while credentials are sent again; here an event callback blocks at the
// same point until the test releases it.
func TestHungConnection_EndsCandidaciesAndLocks(t *testing.T) {
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

// TestElectLeader_NoticesDepartureIfSetWatchesFails checks that a candidate notices that its predecessor has
// left while it was disconnected. The client reconnects immediately to its only server, and the server rejects
// the request that sets the watches again.
func TestElectLeader_NoticesDepartureIfSetWatchesFails(t *testing.T) {
	for how, fault := range map[string]zktest.HookFunc{"rejected": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
		runWithServers(t, how, 1, func(h *harness) {
			leader, conn := h.join(h.connect()), h.dial()
			c := h.join(conn)
			c.requireFollows(leader)
			h.advance(timeout)
			met := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
			h.whileDisconnected(conn, func() { assert.NoError(h, leader.Resign()) })
			<-met.Ran()
			h.advance(timeout / 2)
			c.requireLeads()
		})
	}
}

// TestElection_DistinguishesRecreatedZnodes checks that candidates and observers notice that a znode was
// deleted and created again, with the same version, while the client was disconnected (CURATOR-391).
// Scenario 28 of docs/traps.md.
func TestElection_DistinguishesRecreatedZnodes(t *testing.T) {
	// recreate deletes a znode and creates it again.
	recreate := func(h *harness, path string, flags int32) {
		h.remove(path)
		_, err := h.operator.Create(path, nil, flags, openACL)
		require.NoError(h, err)
	}
	runWithServers(t, "the election node", 3, func(h *harness) {
		c := h.join(h.connect())
		h.disconnect(c.conn)
		h.remove(c.ID())
		recreate(h, node, 0)
		h.advance(shortTime)
		h.reconnect()
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		h.requireIDs()
	})
	runWithServers(t, "the predecessor", 3, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect())
		h.disconnect(c.conn)
		recreate(h, ahead, zk.FlagEphemeral)
		h.advance(shortTime)
		h.reconnect()
		c.requireNeverLed()
		require.Equal(h, ahead, c.newestStatus().NowFollowing)
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
	})
	runWithServers(t, "the candidate's znode, by another client", 3, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect())
		h.disconnect(c.conn)
		recreate(h, c.ID(), zk.FlagEphemeral)
		h.remove(ahead)
		h.advance(shortTime)
		h.reconnect()
		require.Error(h, c.requireOver())
		c.requireNeverLed()
	})
	runWithServers(t, "the leader, for an observer", 3, func(h *harness) {
		ahead := h.createContender()
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		conn := h.connect()
		seen, err := leaderelection.Observe(ctx, conn, node)
		require.NoError(h, err)
		h.advance(0)
		require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
		h.disconnect(conn)
		recreate(h, ahead, zk.FlagEphemeral)
		h.reconnect()
		require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
	})
}
