package traptest

import (
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C4: EndElection did not end the election: whoever came after it led.
func TestC04_EndElection(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, follower, conn := w.enlist(w.connect()), w.enlist(w.connect()), w.connect()
		early := w.candidateAt(node, conn)
		require.NoError(w, follower.EndElection())
		w.pass(10 * time.Millisecond) // one whose znode goes waits for 5 ms before it asks why
		for _, c := range []*candidate{leader, follower} {
			require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		}
		require.NotContains(w, follower.roles(), leaderelection.Leader)
		w.isGone()
		early.begin()
		w.pass(0)
		require.ErrorIs(w, early.over(), leaderelection.ErrElectionOver)
		require.Len(w, early.all(), 1)
		_, err := leaderelection.NewElection(conn, node)
		require.ErrorIs(w, err, leaderelection.ErrNoElection)

		// A new node at the same path is a new election, not theirs.
		_, err = w.operator.Create(node, nil, 0, anybody)
		require.NoError(w, err)
		next := w.enlist(conn)
		require.NoError(w, leader.EndElection())
		next.leads()
	})
}

// C4: nor does one lead that comes while the election is being ended, at
// whatever moment.
func TestC04_NewcomerDuringTheEnd(t *testing.T) {
	mark := path.Join(node, "DONE")
	for name, moment := range map[string]func(w *world, leader *candidate, hold zktest.HookFunc){
		"before the mark": func(w *world, _ *candidate, hold zktest.HookFunc) {
			w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 1}, hold)
		},
		"after the mark": func(w *world, _ *candidate, hold zktest.HookFunc) {
			w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 1}, hold)
		},
		"after the deletion of the candidates": func(w *world, _ *candidate, hold zktest.HookFunc) {
			w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 2}, hold)
		},
		"after the deletion of the node": func(w *world, _ *candidate, hold zktest.HookFunc) {
			w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 2}, hold)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
				grant := leader.leads()
				newcomer := w.candidateAt(node, w.connect())
				hold, release := w.hold()
				moment(w, leader, hold)
				ended := make(chan error, 1)
				go func() { ended <- leaderelection.DeleteElection(w.operator, node) }()
				w.pass(0)
				newcomer.begin()
				w.pass(0)
				release()
				w.pass(100 * time.Millisecond)
				require.NoError(w, <-ended)
				for _, c := range []*candidate{leader, follower, newcomer} {
					require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
					if c != leader {
						require.NotContains(w, c.roles(), leaderelection.Leader)
					}
				}
				require.Error(w, grant.Err())
				found, _, err := follower.conn.Exists(node)
				require.NoError(w, err)
				require.False(w, found)
			})
		})
	}
}

// ends are the ways to end an election.
var ends = map[string]func(w *world, leader *candidate) error{
	"EndElection":    func(_ *world, leader *candidate) error { return leader.EndElection() },
	"DeleteElection": func(w *world, _ *candidate) error { return leaderelection.DeleteElection(w.operator, node) },
}

// C16: a candidate whose data had been set once made the deletion of the whole
// election fail, with the mark left behind.
func TestC16_DeleteAfterDataChange(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader, middle, last := w.enlist(w.connect()), w.enlist(w.connect()), w.enlist(w.connect())
				for _, path := range []string{leader.ID(), last.ID(), node} {
					_, err := w.operator.Set(path, []byte("changed"), -1)
					require.NoError(w, err)
				}
				w.pass(0)
				require.NoError(w, end(w, leader))
				w.pass(10 * time.Millisecond)
				for _, c := range []*candidate{leader, middle, last} {
					require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
				}
				require.NotContains(w, append(middle.roles(), last.roles()...), leaderelection.Leader)
				w.isGone()
			})
		})
	}
}

// C16: so did one that left while the deletion was under way. It is done again
// without that one, at once.
func TestC16_DeleteWhileTheyChange(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader, conn := w.enlist(w.connect()), w.connect()
				others := []string{w.contender(), w.contender(), w.contender()} // who do not heed the mark
				deletion := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: others[2], Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					_, err := conn.Set(others[0], []byte("changed"), -1)
					assert.NoError(w, err)
					assert.NoError(w, conn.Delete(others[1], -1))
					return zktest.Pass(q)
				})
				begin := time.Now()
				require.NoError(w, end(w, leader))
				<-deletion.Ran()
				require.LessOrEqual(w, time.Since(begin), 5*time.Millisecond, "there is nothing to wait for but the leader")
				w.pass(10 * time.Millisecond)
				require.ErrorIs(w, leader.over(), leaderelection.ErrElectionOver)
				w.isGone()
			})
		})
	}
}
