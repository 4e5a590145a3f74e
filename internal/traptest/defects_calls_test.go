package traptest

import (
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

// C5: the second Resign, EndElection or ElectLeader panicked.
func TestC05_Twice(t *testing.T) {
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
		all(first.ElectLeader, leaderelection.ErrCandidacyOver)
		second.requireLeads()

		all(idle.Resign, nil) // it has never taken part
		all(idle.ElectLeader, leaderelection.ErrCandidacyOver)
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

// C5: so did both at the same time.
func TestC05_ResignAndEndAtOnce(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, follower := h.join(h.connect()), h.join(h.connect())
		var wg sync.WaitGroup
		for range 4 {
			for _, c := range []*candidate{leader, follower} {
				wg.Go(func() { assert.NoError(h, c.Resign()) })
				wg.Go(func() { assert.NoError(h, c.EndElection()) })
			}
		}
		wg.Wait()
		h.advance(0)
		_, _ = leader.requireOver(), follower.requireOver()
		h.requireNoElection()
	})
}

// C6: Resign while the connection was down left the znode: nobody led from the
// reconnect until the session's end.
func TestC06_Zombie(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, follower := h.join(h.connect()), h.join(h.connect())
		h.advance(time.Second)
		grant, session := leader.requireLeads(), leader.conn.SessionID()
		done := doneTime(grant)
		h.srv.Refuse(true)
		h.srv.DropConnections(session)
		h.advance(100 * time.Millisecond)

		asked := time.Now()
		require.ErrorIs(h, leader.Resign(), leaderelection.ErrUnconfirmed)
		require.Equal(h, asked.Add(1500*time.Millisecond), time.Now(), "it does not wait for ever")
		require.ErrorIs(h, grant.Err(), leaderelection.ErrResigned)
		require.Equal(h, asked, done.time(), "told at once, whatever the network does")
		h.advance(0)
		require.NoError(h, leader.requireOver())
		require.Equal(h, []leaderelection.Role{leaderelection.Leader}, leader.roles(), "no final status")
		h.requireChildren(names(leader, follower)...)
		follower.requireFollows(leader)

		h.srv.Refuse(false)
		h.advance(time.Second) // the client dials once a second
		require.Equal(h, session, leader.conn.SessionID())
		h.requireChildren(names(follower)...)
		follower.requireLeads()
		require.NoError(h, leader.Resign(), "now it is confirmed")
		require.Len(h, h.srv.Sessions(), 3)
	})
}

// C6: so did a deletion whose request or answer got lost.
func TestC06_DeletionLost(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		last := h.join(h.connect())
		for _, set := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{h.srv.Before, h.srv.After} {
			c := last
			last = h.join(h.connect())
			session := c.conn.SessionID()
			lost := set(zktest.Match{Op: zktest.OpDelete, Path: c.ID(), Nth: 1}, zktest.Cut)
			require.NoError(h, c.Resign())
			<-lost.Ran()
			h.advance(0)
			require.Equal(h, session, c.conn.SessionID())
			h.requireChildren(names(last)...)
			last.requireLeads()
		}
	})
}

// C8: after an error at the start the channel stayed open and ElectLeader did
// not return: a goroutine for each candidate that came late.
func TestC08_ErrorAtStart(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var late []*candidate
		for range 100 {
			late = append(late, h.newCandidate(node, conn))
		}
		mark := path.Join(node, "DONE")
		_, err := h.operator.Create(mark, []byte("done"), 0, openACL)
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
			require.NotContains(h, string(stacks), "ElectLeader", "a goroutine is left")
		}
		end(late[:50])
		h.requireChildren("DONE")
		require.NoError(h, h.operator.Delete(mark, -1))
		require.NoError(h, h.operator.Delete(node, -1))
		end(late[50:])

		// It is final: nothing is left that could take part later.
		_, err = h.operator.Create(node, nil, 0, openACL)
		require.NoError(h, err)
		require.ErrorIs(h, late[0].ElectLeader(), leaderelection.ErrCandidacyOver)
		h.requireChildren()
	})
}

// C15: the candidate's ID was read and written without synchronisation. Every
// method may be called from anywhere while everything changes; the race
// detector is the judge.
func TestC15_DataRace(t *testing.T) {
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
