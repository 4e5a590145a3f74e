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
	play(t, 1, func(w *world) {
		first, second, idle := w.enlist(w.connect()), w.enlist(w.connect()), w.candidateAt(node, w.connect())
		var wg sync.WaitGroup
		all := func(f func() error, want error) {
			w.Helper()
			for range 8 {
				wg.Go(func() {
					if want == nil {
						assert.NoError(w, f())
					} else {
						assert.ErrorIs(w, f(), want)
					}
				})
			}
			wg.Wait()
			w.pass(0)
		}
		all(first.ElectLeader, leaderelection.ErrAlreadyStarted)
		first.leads()
		all(first.Resign, nil)
		require.NoError(w, first.over())
		all(first.ElectLeader, leaderelection.ErrCandidacyOver)
		second.leads()

		all(idle.Resign, nil) // it has never taken part
		all(idle.ElectLeader, leaderelection.ErrCandidacyOver)
		_, open := <-idle.Status()
		require.False(w, open)

		all(second.EndElection, nil)
		require.ErrorIs(w, second.over(), leaderelection.ErrElectionOver)
		all(second.EndElection, nil)
		all(second.Resign, nil)
		all(first.EndElection, nil)
		w.isGone()
	})
}

// C5: so did both at the same time.
func TestC05_ResignAndEndAtOnce(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
		var wg sync.WaitGroup
		for range 4 {
			for _, c := range []*candidate{leader, follower} {
				wg.Go(func() { assert.NoError(w, c.Resign()) })
				wg.Go(func() { assert.NoError(w, c.EndElection()) })
			}
		}
		wg.Wait()
		w.pass(0)
		_, _ = leader.over(), follower.over()
		w.isGone()
	})
}

// C6: Resign while the connection was down left the znode: nobody led from the
// reconnect until the session's end.
func TestC06_Zombie(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
		w.pass(time.Second)
		grant, session := leader.leads(), leader.conn.SessionID()
		done := endOf(grant)
		w.srv.Refuse(true)
		w.srv.DropConnections(session)
		w.pass(100 * time.Millisecond)

		asked := time.Now()
		require.ErrorIs(w, leader.Resign(), leaderelection.ErrUnconfirmed)
		require.Equal(w, asked.Add(1500*time.Millisecond), time.Now(), "it does not wait for ever")
		require.ErrorIs(w, grant.Err(), leaderelection.ErrResigned)
		require.Equal(w, asked, done.time(), "told at once, whatever the network does")
		w.pass(0)
		require.NoError(w, leader.over())
		require.Equal(w, []leaderelection.Role{leaderelection.Leader}, leader.roles(), "no final status")
		w.stands(line(leader, follower)...)
		follower.follows(leader)

		w.srv.Refuse(false)
		w.pass(time.Second) // the client dials once a second
		require.Equal(w, session, leader.conn.SessionID())
		w.stands(line(follower)...)
		follower.leads()
		require.NoError(w, leader.Resign(), "now it is confirmed")
		require.Len(w, w.srv.Sessions(), 3)
	})
}

// C6: so did a deletion whose request or answer got lost.
func TestC06_DeletionLost(t *testing.T) {
	play(t, 1, func(w *world) {
		last := w.enlist(w.connect())
		for _, set := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.srv.Before, w.srv.After} {
			c := last
			last = w.enlist(w.connect())
			session := c.conn.SessionID()
			lost := set(zktest.Match{Op: zktest.OpDelete, Path: c.ID(), Nth: 1}, zktest.Cut)
			require.NoError(w, c.Resign())
			<-lost.Ran()
			w.pass(0)
			require.Equal(w, session, c.conn.SessionID())
			w.stands(line(last)...)
			last.leads()
		}
	})
}

// C8: after an error at the start the channel stayed open and ElectLeader did
// not return: a goroutine for each candidate that came late.
func TestC08_ErrorAtStart(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		var late []*candidate
		for range 100 {
			late = append(late, w.candidateAt(node, conn))
		}
		mark := path.Join(node, "DONE")
		_, err := w.operator.Create(mark, []byte("done"), 0, anybody)
		require.NoError(w, err)
		w.pass(0)
		end := func(candidates []*candidate) {
			w.Helper()
			for _, c := range candidates {
				c.begin()
			}
			w.pass(0)
			for _, c := range candidates {
				require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
				require.Len(w, c.all(), 1)
			}
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			require.NotContains(w, string(stacks), "ElectLeader", "a goroutine is left")
		}
		end(late[:50])
		w.stands("DONE")
		require.NoError(w, w.operator.Delete(mark, -1))
		require.NoError(w, w.operator.Delete(node, -1))
		end(late[50:])

		// It is final: nothing is left that could take part later.
		_, err = w.operator.Create(node, nil, 0, anybody)
		require.NoError(w, err)
		require.ErrorIs(w, late[0].ElectLeader(), leaderelection.ErrCandidacyOver)
		w.stands()
	})
}

// C15: the candidate's ID was read and written without synchronisation. Every
// method may be called from anywhere while everything changes; the race
// detector is the judge.
func TestC15_DataRace(t *testing.T) {
	play(t, 1, func(w *world) {
		conns := []*zk.Conn{w.connect(), w.connect()}
		var all []*candidate
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 6 {
			c := w.candidateAt(node, conns[i%2], leaderelection.WithRejoin())
			all = append(all, c)
			for range 2 {
				wg.Go(func() {
					for closed := false; !closed; {
						s := c.Current()
						_ = c.ID() + s.String() + s.Role.String()
						if s.Leadership != nil {
							_, _, _ = s.Leadership.Err(), s.Leadership.Deadline(), s.Leadership.Token()
							_, _ = c.Multi()
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
			c.begin()
		}
		w.pass(50 * time.Millisecond)
		require.NoError(w, w.srv.ExpireSession(conns[0].SessionID()))
		w.pass(2 * time.Second)
		w.srv.DropConnections(conns[1].SessionID())
		w.pass(2 * time.Second)
		for _, c := range all {
			require.NoError(w, c.Current().Err)
			require.NotEmpty(w, c.ID())
		}
		for _, c := range all {
			wg.Go(func() { assert.NoError(w, c.Resign()) })
		}
		w.pass(time.Second)
		close(stop)
		wg.Wait()
		w.pass(0)
		for _, c := range all {
			require.NoError(w, c.over())
		}
		w.stands()
	})
}
