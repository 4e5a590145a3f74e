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
	withServers(t, 1, func(h *harness) {
		leader, follower, conn := h.join(h.connect()), h.join(h.connect()), h.connect()
		early := h.newCandidate(node, conn)
		require.NoError(h, follower.EndElection())
		h.advance(10 * time.Millisecond) // one whose znode goes waits for 5 ms before it asks why
		for _, c := range []*candidate{leader, follower} {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		}
		require.NotContains(h, follower.roles(), leaderelection.Leader)
		h.requireNoElection()
		early.start()
		h.advance(0)
		require.ErrorIs(h, early.requireOver(), leaderelection.ErrElectionOver)
		require.Len(h, early.received(), 1)
		_, err := leaderelection.NewElection(conn, node)
		require.ErrorIs(h, err, leaderelection.ErrNoElection)

		// A new node at the same path is a new election, not theirs.
		_, err = h.operator.Create(node, nil, 0, openACL)
		require.NoError(h, err)
		next := h.join(conn)
		require.NoError(h, leader.EndElection())
		next.requireLeads()
	})
}

// C4: nor does one lead that comes while the election is being ended, at
// whatever moment.
func TestC04_NewcomerDuringTheEnd(t *testing.T) {
	mark := path.Join(node, "DONE")
	for name, moment := range map[string]func(h *harness, leader *candidate, hold zktest.HookFunc){
		"before the mark": func(h *harness, _ *candidate, hold zktest.HookFunc) {
			h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 1}, hold)
		},
		"after the mark": func(h *harness, _ *candidate, hold zktest.HookFunc) {
			h.srv.After(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 1}, hold)
		},
		"after the deletion of the candidates": func(h *harness, _ *candidate, hold zktest.HookFunc) {
			h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 2}, hold)
		},
		"after the deletion of the node": func(h *harness, _ *candidate, hold zktest.HookFunc) {
			h.srv.After(zktest.Match{Op: zktest.OpMulti, Path: mark, Nth: 2}, hold)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, follower := h.join(h.connect()), h.join(h.connect())
				grant := leader.requireLeads()
				newcomer := h.newCandidate(node, h.connect())
				hold, release := h.hold()
				moment(h, leader, hold)
				ended := make(chan error, 1)
				go func() { ended <- leaderelection.DeleteElection(h.operator, node) }()
				h.advance(0)
				newcomer.start()
				h.advance(0)
				release()
				h.advance(100 * time.Millisecond)
				require.NoError(h, <-ended)
				for _, c := range []*candidate{leader, follower, newcomer} {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
					if c != leader {
						require.NotContains(h, c.roles(), leaderelection.Leader)
					}
				}
				require.Error(h, grant.Err())
				found, _, err := follower.conn.Exists(node)
				require.NoError(h, err)
				require.False(h, found)
			})
		})
	}
}

// ends are the ways to end an election.
var ends = map[string]func(h *harness, leader *candidate) error{
	"EndElection":    func(_ *harness, leader *candidate) error { return leader.EndElection() },
	"DeleteElection": func(h *harness, _ *candidate) error { return leaderelection.DeleteElection(h.operator, node) },
}

// C16: a candidate whose data had been set once made the deletion of the whole
// election fail, with the mark left behind.
func TestC16_DeleteAfterDataChange(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, middle, last := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
				for _, path := range []string{leader.ID(), last.ID(), node} {
					_, err := h.operator.Set(path, []byte("changed"), -1)
					require.NoError(h, err)
				}
				h.advance(0)
				require.NoError(h, end(h, leader))
				h.advance(10 * time.Millisecond)
				for _, c := range []*candidate{leader, middle, last} {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				}
				require.NotContains(h, append(middle.roles(), last.roles()...), leaderelection.Leader)
				h.requireNoElection()
			})
		})
	}
}

// C16: so did one that left while the deletion was under way. It is done again
// without that one, at once.
func TestC16_DeleteWhileTheyChange(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, conn := h.join(h.connect()), h.connect()
				others := []string{h.createContender(), h.createContender(), h.createContender()} // who do not heed the mark
				deletion := h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: others[2], Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					_, err := conn.Set(others[0], []byte("changed"), -1)
					assert.NoError(h, err)
					assert.NoError(h, conn.Delete(others[1], -1))
					return zktest.Pass(q)
				})
				begin := time.Now()
				require.NoError(h, end(h, leader))
				<-deletion.Ran()
				require.LessOrEqual(h, time.Since(begin), 5*time.Millisecond, "there is nothing to wait for but the leader")
				h.advance(10 * time.Millisecond)
				require.ErrorIs(h, leader.requireOver(), leaderelection.ErrElectionOver)
				h.requireNoElection()
			})
		})
	}
}
