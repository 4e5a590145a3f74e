package leaderelection_test

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestElection_RepeatedCalls fails if a second call of Resign, EndElection or ElectLeader panics
// or returns a wrong result.
func TestElection_RepeatedCalls(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		first, second, idle := h.join(h.connect()), h.join(h.connect()), h.newCandidate(node, h.connect())
		var wg sync.WaitGroup
		all := func(f func() error, want error) {
			h.Helper()
			for range 8 {
				wg.Go(func() {
					if want == nil {
						assert.NoError(h, f())
					} else {
						assert.ErrorIs(h, f(), want)
					}
				})
			}
			wg.Wait()
			h.advance(0)
		}
		all(first.ElectLeader, leaderelection.ErrAlreadyStarted)
		first.requireLeads()
		all(first.Resign, nil)
		require.NoError(h, first.requireOver())
		all(first.ElectLeader, leaderelection.ErrAlreadyStarted)
		second.requireLeads()

		all(idle.Resign, nil) // it was never started
		require.NoError(h, idle.ElectLeader())
		all(idle.ElectLeader, leaderelection.ErrAlreadyStarted)
		_, open := <-idle.Status()
		require.False(h, open)

		all(second.EndElection, nil)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrElectionOver)
		all(second.EndElection, nil)
		all(second.Resign, nil)
		all(first.EndElection, nil)
		h.requireNoElection()
	})
}

// TestElectLeader_ElectionIsOver fails if ElectLeader does not return, or the status channel is
// not closed, for a candidate that is started after the election has ended.
func TestElectLeader_ElectionIsOver(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var late []*candidate
		for range 100 {
			late = append(late, h.newCandidate(node, conn))
		}
		tombstone := path.Join(node, "DONE")
		_, err := h.operator.Create(tombstone, []byte("done"), 0, openACL)
		require.NoError(h, err)
		h.advance(0)
		end := func(candidates []*candidate) {
			h.Helper()
			for _, c := range candidates {
				c.start()
			}
			h.advance(0)
			for _, c := range candidates {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				require.Len(h, c.received(), 1)
			}
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			require.NotContains(h, string(stacks), "(*Election).ElectLeader", "a goroutine of ElectLeader remains")
		}
		end(late[:50])
		h.requireChildren("DONE")
		require.NoError(h, h.operator.Delete(tombstone, -1))
		require.NoError(h, h.operator.Delete(node, -1))
		end(late[50:])

		// The candidacy cannot continue in a new election.
		_, err = h.operator.Create(node, nil, 0, openACL)
		require.NoError(h, err)
		require.ErrorIs(h, late[0].ElectLeader(), leaderelection.ErrAlreadyStarted)
		h.requireChildren()
	})
}

// TestElection_ConcurrentCalls calls all methods from several goroutines while candidates join,
// lose their session and reconnect. The race detector finds accesses without synchronization.
func TestElection_ConcurrentCalls(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conns := []*zk.Conn{h.connect(), h.connect()}
		var all []*candidate
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 6 {
			c := h.newCandidate(node, conns[i%2], leaderelection.WithRejoin())
			all = append(all, c)
			for range 2 {
				wg.Go(func() {
					for closed := false; !closed; {
						s := c.Current()
						_ = c.ID() + s.String() + s.Role.String()
						if s.Leadership != nil {
							_, _, _ = s.Leadership.Err(), s.Leadership.Deadline(), s.Leadership.Token()
							_, _ = c.multi()
						}
						select {
						case <-stop:
							closed = true
						case <-time.After(3 * time.Millisecond):
						}
					}
				})
			}
		}
		for _, c := range all {
			c.start()
		}
		h.advance(50 * time.Millisecond)
		require.NoError(h, h.srv.ExpireSession(conns[0].SessionID()))
		h.advance(2 * time.Second)
		h.srv.DropConnections(conns[1].SessionID())
		h.advance(2 * time.Second)
		for _, c := range all {
			require.NoError(h, c.Current().Err)
			require.NotEmpty(h, c.ID())
		}
		for _, c := range all {
			wg.Go(func() { assert.NoError(h, c.Resign()) })
		}
		h.advance(time.Second)
		close(stop)
		wg.Wait()
		h.advance(0)
		for _, c := range all {
			require.NoError(h, c.requireOver())
		}
		h.requireChildren()
	})
}

// TestElectLeader_ConnectionIsClosed fails if a candidate sends a request while its connection is
// closed. The server then still sends a notification for each znode of the session. The request
// can block forever in the client library. Its goroutine would remain in the bubble, which fails
// the test.
func TestElectLeader_ConnectionIsClosed(t *testing.T) {
	for n := 2; n <= 5; n++ {
		t.Run(fmt.Sprintf("%d candidates", n), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				conn, pause := h.connectSlowly()
				var all []*candidate
				for range n {
					all = append(all, h.join(conn))
				}
				h.advance(time.Second + 60*time.Millisecond)
				pause.set(500 * time.Microsecond)
				conn.Close()
				h.advance(timeout)
				for i, c := range all {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrConnClosed)
					if i > 0 {
						require.NotContains(h, c.roles(), leaderelection.Leader)
					}
				}
			})
		})
	}
}

// kazoo PR 170, #116, #482: a call waits forever on a connection that is suspended or was closed.
func TestTrap22_EveryStateCanBeEnded(t *testing.T) {
	states := []struct {
		name string
		// prepare brings a candidate into the state.
		prepare func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate
	}{
		{"leading", (*harness).join},
		{"following", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			h.createContender()
			return h.join(conn, options...)
		}},
		{"suspended", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			c := h.join(conn, options...)
			h.srv.Refuse(true)
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			h.advance(timeout * 5 / 8)
			require.Equal(h, leaderelection.Suspended, c.newest().Role)
			return c
		}},
		{"disconnected", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			h.createContender()
			c := h.join(conn, options...)
			h.disconnect(conn)
			return c
		}},
		{"creating", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			hold, _ := h.hold()
			h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, hold)
			return h.join(conn, options...)
		}},
		{"joining without a connection", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			e, err := leaderelection.NewElection(conn, node, append(options, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())...)
			require.NoError(h, err)
			h.disconnect(conn)
			c := h.startElection(e, conn)
			h.advance(0)
			return c
		}},
	}
	ends := []struct {
		name string
		end  func(c *candidate, cancel func())
		want error
	}{
		{"closed", func(c *candidate, _ func()) { c.conn.Close() }, leaderelection.ErrConnClosed},
		{"resigned", func(c *candidate, _ func()) { _ = c.Resign() }, nil},
		{"context", func(c *candidate, cancel func()) { cancel() }, nil},
		{"ended", func(c *candidate, _ func()) { _ = c.EndElection() }, leaderelection.ErrElectionOver},
	}
	for _, state := range states {
		for _, end := range ends {
			t.Run(state.name+", "+end.name, func(t *testing.T) {
				withServers(t, 1, func(h *harness) {
					ctx, cancel := context.WithCancel(h.Context())
					defer cancel()
					c := state.prepare(h, h.connect(), leaderelection.WithContext(ctx))
					h.advance(shortTime) // a client that is closed while a check is sent can block forever
					returned := async(func() struct{} { end.end(c, cancel); return struct{}{} })
					h.advance(2*time.Second + shortTime)
					require.Len(h, returned, 1, "the call has not returned")
					if end.want == nil {
						require.NoError(h, c.requireOver())
					} else {
						require.ErrorIs(h, c.requireOver(), end.want)
					}
					_, err := c.multi()
					require.ErrorIs(h, err, leaderelection.ErrNotLeader)
					require.Equal(h, leaderelection.Follower, c.Current().Role)
				})
			})
		}
	}
}

// CURATOR-620, CURATOR-652, CURATOR-653: two concurrent resets of a candidate create two znodes or
// two leaders, or leave a znode behind.
func TestTrap38_ConcurrentCalls(t *testing.T) {
	for round := range 10 {
		withServers(t, 3, func(h *harness) {
			conn := h.connect()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())
			require.NoError(h, err)
			drop := func() { h.eachServer(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) }) }
			// It is started several times while its connection breaks.
			var started []<-chan error
			for range 10 {
				started = append(started, async(e.ElectLeader))
			}
			drop()
			h.advance(timeout)
			require.Equal(h, leaderelection.Leader, e.Current().Role)
			h.requireIDs(e.ID())

			var ended []<-chan error
			for i := range 10 {
				if i == round {
					drop()
				}
				ended = append(ended, async(e.Resign))
			}
			h.advance(timeout)
			for _, c := range ended {
				require.NoError(h, receive(h, c))
			}
			elections := 0
			for _, c := range started {
				if err := receive(h, c); err == nil {
					elections++
				} else {
					require.ErrorIs(h, err, leaderelection.ErrAlreadyStarted)
				}
			}
			require.Equal(h, 1, elections)
			h.requireIDs()
			require.Equal(h, zk.StateHasSession, conn.State())
		})
	}
}

// kazoo #291, #134, #315: a lock belongs to a thread, which can enter it again. A candidate
// belongs neither to a goroutine nor to a connection: a second candidate on the same connection
// waits for the first one.
func TestTrap54_TwoCandidatesOnOneConnection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.join(conn)
		l := c.requireLeads()
		again := h.join(conn)
		again.requireFollows(c)
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		_, err := again.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		h.requireIDs(c.ID(), again.ID())
		require.NoError(h, l.Err())
		require.NoError(h, <-async(c.Resign), "on another goroutine")
		h.advance(shortTime) // the second candidate waits in case the session ends as well
		again.requireLeads()
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		again.resign()
		h.requireIDs()
	})
}
