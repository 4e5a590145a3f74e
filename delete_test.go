package leaderelection_test

import (
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestEndElection_EndsAllCandidacies checks that no candidate can become the leader after EndElection, even
// when it joins later.
func TestEndElection_EndsAllCandidacies(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, follower, conn := h.join(h.connect()), h.join(h.connect()), h.connect()
		early := h.newCandidate(node, conn)
		require.NoError(h, follower.EndElection())
		// Wait longer than the 5 ms after which a candidate whose znode was deleted reads why it was deleted.
		h.advance(10 * time.Millisecond)
		for _, c := range []*candidate{leader, follower} {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		}
		require.NotContains(h, follower.receivedRoles(), leaderelection.Leader)
		h.requireNoElection()
		early.start()
		h.advance(0)
		require.ErrorIs(h, early.requireOver(), leaderelection.ErrElectionOver)
		require.Len(h, early.receivedStatuses(), 1)
		_, err := leaderelection.NewElection(conn, node)
		require.ErrorIs(h, err, leaderelection.ErrNoElection)

		// A new node at the same path is another election, which candidates can join.
		_, err = h.operator.Create(node, nil, 0, openACL)
		require.NoError(h, err)
		next := h.join(conn)
		require.NoError(h, leader.EndElection())
		require.NoError(h, early.EndElection())
		h.advance(10 * time.Millisecond)
		next.requireLeads()
	})
}

// TestDeleteElection_EndsCandidateThatJoinsMeanwhile checks that a candidate that joins during the deletion
// cannot become the leader.
func TestDeleteElection_EndsCandidateThatJoinsMeanwhile(t *testing.T) {
	tombstone := path.Join(node, "DONE")
	for name, pause := range map[string]func(h *harness, hold zktest.HookFunc){
		"before the tombstone is created": func(h *harness, hold zktest.HookFunc) {
			h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: tombstone, Nth: 1}, hold)
		},
		"after the tombstone was created": func(h *harness, hold zktest.HookFunc) {
			h.srv.After(zktest.Match{Op: zktest.OpMulti, Path: tombstone, Nth: 1}, hold)
		},
		"after the candidates were deleted": func(h *harness, hold zktest.HookFunc) {
			h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: tombstone, Nth: 2}, hold)
		},
		"after the node was deleted": func(h *harness, hold zktest.HookFunc) {
			h.srv.After(zktest.Match{Op: zktest.OpMulti, Path: tombstone, Nth: 2}, hold)
		},
	} {
		runWithServers(t, name, 1, func(h *harness) {
			leader, follower := h.join(h.connect()), h.join(h.connect())
			grant := leader.requireLeads()
			late := h.newCandidate(node, h.connect())
			hold, release := bubble.Hold(h)
			pause(h, hold)
			ended := make(chan error, 1)
			go func() { ended <- leaderelection.DeleteElection(h.operator, node) }()
			h.advance(0)
			late.start()
			h.advance(0)
			release()
			h.advance(100 * time.Millisecond)
			require.NoError(h, <-ended)
			for _, c := range []*candidate{leader, follower, late} {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				if c != leader {
					require.NotContains(h, c.receivedRoles(), leaderelection.Leader)
				}
			}
			require.Error(h, grant.Err())
			found, _, err := follower.conn.Exists(node)
			require.NoError(h, err)
			require.False(h, found)
		})
	}
}

// endFuncs contains the functions that end an election, by name.
var endFuncs = map[string]func(h *harness, leader *candidate) error{
	"EndElection":    func(_ *harness, leader *candidate) error { return leader.EndElection() },
	"DeleteElection": func(h *harness, _ *candidate) error { return leaderelection.DeleteElection(h.operator, node) },
}

// TestDeleteElection_SucceedsWhileCandidatesChange checks that DeleteElection and EndElection neither fail nor
// pause if other clients have changed the data of znodes, change and delete candidates during the deletion, or
// have created candidates with the names of hand-written elections.
func TestDeleteElection_SucceedsWhileCandidatesChange(t *testing.T) {
	for name, end := range endFuncs {
		runWithServers(t, name, 1, func(h *harness) {
			leader, conn := h.join(h.connect()), h.connect()
			for _, prefix := range []string{"n_", "", "node_"} { // the prefixes of hand-written candidates
				_, err := h.operator.Create(node+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
				require.NoError(h, err)
			}
			for _, path := range []string{leader.ID(), node} {
				_, err := h.operator.Set(path, []byte("changed"), -1)
				require.NoError(h, err)
			}
			// Candidates of other programs ignore the tombstone, so the deletion must delete them.
			others := []string{h.createContender(), h.createContender(), h.createContender()}
			deletion := h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: others[2], Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				_, err := conn.Set(others[0], []byte("changed"), -1)
				assert.NoError(h, err)
				assert.NoError(h, conn.Delete(others[1], -1))
				return zktest.Pass(q)
			})
			begin := time.Now()
			require.NoError(h, end(h, leader))
			<-deletion.Ran()
			require.LessOrEqual(h, time.Since(begin), 5*time.Millisecond, "the deletion has paused")
			h.advance(10 * time.Millisecond)
			require.ErrorIs(h, leader.requireOver(), leaderelection.ErrElectionOver)
			h.requireNoElection()
		})
	}
}

// TestDeleteElection_LimitsRequestsWhileCandidatesLeave checks that the number of requests does not grow with
// the number of candidates that leave during the deletion.
func TestDeleteElection_LimitsRequestsWhileCandidatesLeave(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var ids []string
		for range 300 {
			ids = append(ids, h.createContender())
		}
		conn := h.connect()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: ids[299], Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			for _, id := range ids[50:] {
				assert.NoError(h, conn.Delete(id, -1))
			}
			return zktest.Pass(q)
		})
		h.srv.ResetLog()
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.requireNoElection()
		require.LessOrEqual(h, h.srv.Log().Count(zktest.OpMulti), 5)
	})
}

// TestDeleteElection_DeletesInReverseOrder checks that no candidate leads because its predecessor was deleted:
// DeleteElection deletes each znode before that of the predecessor. In both cases the tombstone does not wake
// the direct follower, because the client may not write to the leader's znode, or because another client has
// created the tombstone.
func TestDeleteElection_DeletesInReverseOrder(t *testing.T) {
	for name, test := range map[string]struct {
		leader    leaderelection.Option
		tombstone bool // another client has created the tombstone
	}{
		"the leader's znode cannot be written to":  {leader: leaderelection.WithACL(zk.WorldACL(zk.PermAll &^ zk.PermWrite))},
		"another client has created the tombstone": {leader: leaderelection.WithName(""), tombstone: true},
	} {
		for way, end := range endFuncs {
			runWithServers(t, name+", "+way, 1, func(h *harness) {
				conn, pause := h.connectSlowly()
				leader, second := h.join(h.connect(), test.leader), h.join(conn)
				third := h.join(h.connect())
				if test.tombstone {
					_, err := h.operator.Create(path.Join(node, "DONE"), []byte("done"), 0, openACL)
					require.NoError(h, err)
				}
				h.advance(time.Second + 60*time.Millisecond)
				second.requireFollows(leader)
				pause.set(packetGap)
				require.NoError(h, end(h, leader))
				h.advance(time.Second)
				for _, c := range []*candidate{leader, second, third} {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				}
				require.NotContains(h, append(second.receivedRoles(), third.receivedRoles()...), leaderelection.Leader)
				h.requireNoElection()
			})
		}
	}
}

// TestDeleteElection_TombstoneWakesDirectFollower checks that the creation of the tombstone wakes the direct
// follower of the leader. Otherwise the follower could become the leader without a request when the leader
// leaves.
func TestDeleteElection_TombstoneWakesDirectFollower(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, second, third := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		deleter := h.connect()
		hold, release := bubble.Hold(h)
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: deleter.SessionID(), Nth: 2}, hold)
		ended := make(chan error, 1)
		go func() { ended <- leaderelection.DeleteElection(deleter, node) }()
		h.advance(0)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrElectionOver)
		require.ErrorIs(h, third.requireOver(), leaderelection.ErrElectionOver)
		require.NoError(h, leader.requireLeads().Err(), "the leader was notified")
		require.NoError(h, leader.Resign())
		h.advance(0)
		h.requireChildren("DONE")
		release()
		require.NoError(h, <-ended)
		h.requireNoElection()
	})
}

// TestDeleteElection_WritesTombstoneFirstDeletesItLast checks that DeleteElection creates the tombstone before
// it deletes a candidate, and deletes the tombstone and the election node in one transaction.
func TestDeleteElection_WritesTombstoneFirstDeletesItLast(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		tombstone := path.Join(node, "DONE")
		others := []string{h.createContender(), h.createContender()}
		h.srv.ResetLog()
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		var order []string
		for _, e := range h.requests(zktest.OpMulti, 0) {
			order = append(order, e.Path)
		}
		require.Equal(h, []string{tombstone, others[1], tombstone}, order)
		require.Empty(h, h.requests(zktest.OpDelete, 0), "a znode was deleted without a transaction")
	})
}

// TestDeleteElection_EndsFollowerThatMissesTombstone checks that the direct follower lists the election after a
// reconnect, and so finds a tombstone that was created while the follower was disconnected. The client that has
// created the tombstone may not write to the leader's znode, so it cannot wake the follower.
func TestDeleteElection_EndsFollowerThatMissesTombstone(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader := h.join(h.connect(), leaderelection.WithACL(zk.WorldACL(zk.PermRead)))
		next := h.join(h.connect())
		next.requireFollows(leader)
		h.advance(timeout)
		h.srv.Refuse(true)
		h.srv.DropConnections(next.conn.SessionID())
		h.advance(shortTime)
		h.srv.Refuse(false)
		h.create(node + "/DONE")
		h.advance(timeout / 2)
		h.remove(leader.ID())
		h.advance(timeout)
		require.ErrorIs(h, next.requireOver(), leaderelection.ErrElectionOver)
		next.requireNeverLed()
	})
}

// TestDeleteElection_DeletedCandidatesSendNoListing checks that a candidate does not list the election if
// DeleteElection has deleted its znode together with that of its predecessor.
func TestDeleteElection_DeletedCandidatesSendNoListing(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var all []*candidate
		for range 20 {
			all = append(all, h.join(h.connect()))
		}
		h.srv.ResetLog()
		hold, release := bubble.Hold(h)
		h.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: all[1].conn.SessionID()}, hold)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		release()
		h.advance(timeout)
		for _, c := range all {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		}
		// The tombstone wakes the direct follower of the first candidate. The follower would list the
		// election and leave, and so would the candidates behind it, one after another. In this test, the
		// listing of the follower is delayed, so DeleteElection deletes the other candidates together with
		// their predecessors.
		together := 0
		for _, c := range all[2:] {
			log := h.srv.Log().Session(c.conn.SessionID())
			deletions := log.Filter(func(e zktest.Entry) bool {
				return e.Op == zktest.OpNotification && e.Event == zk.EventNodeDeleted
			})
			if n := len(deletions); n > 1 && deletions[0].Zxid == deletions[n-1].Zxid {
				together++
				require.Zero(h, log.Count(zktest.OpGetChildren2), "%s", log)
			}
		}
		require.GreaterOrEqual(h, together, len(all)/2)
	})
}

// TestDeleteElection_DeletesPresentElectionOnLaggingServer checks that DeleteElection deletes the present
// election when its server still shows an earlier election at the path.
func TestDeleteElection_DeletesPresentElectionOnLaggingServer(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn, catchUp := behindLaggingServer(h)
		h.create(node)
		c := h.join(h.operator)
		c.requireLeads()
		time.AfterFunc(100*time.Millisecond, catchUp)
		require.NoError(h, leaderelection.DeleteElection(conn, node))
		h.advance(timeout / 4)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		found, _, err := h.operator.Exists(node)
		require.NoError(h, err)
		require.False(h, found)
	})
}

// TestDeleteElection_SparesLaterElectionAtSamePath checks that a deletion does not affect the candidates of a
// later election, which another client has created at the same path while the deletion is in progress.
func TestDeleteElection_SparesLaterElectionAtSamePath(t *testing.T) {
	for name, candidates := range map[string]int{"with candidates": 2, "empty": 0} {
		runWithServers(t, name, 1, func(h *harness) {
			for range candidates {
				h.createContender()
			}
			conn, next := h.connect(), h.connect()
			var c *candidate
			replaced := h.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Path: node, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				if err := leaderelection.DeleteElection(h.operator, node); err != nil {
					h.Error(err)
				}
				if _, err := h.operator.Create(node, nil, 0, openACL); err != nil {
					h.Error(err)
				}
				c = h.joinAsync(next)
				time.Sleep(timeout / 4)
				return zktest.Pass(q)
			})
			require.NoError(h, leaderelection.DeleteElection(conn, node))
			bubble.RequireRun(h, replaced)
			h.advance(timeout)
			c.requireLeads()
			require.Len(h, c.receivedStatuses(), 1)
			h.requireIDs(c.ID())
		})
	}
}
