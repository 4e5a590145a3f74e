package leaderelection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C3: a change of a candidate's data ended the watch on it: its follower used a
// CPU and was never promoted, a leader was not told of its deletion any more.
func TestWatch_DataChanged(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, f1, f2 := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		all := []*candidate{leader, f1, f2}
		h.advance(time.Second)
		h.srv.ResetLog()
		for _, c := range all {
			for range 2 {
				_, err := h.operator.Set(c.ID(), []byte("changed"), -1)
				require.NoError(h, err)
				h.advance(0)
			}
		}
		// A loop would not let fake time pass. Each change costs the direct follower of
		// the leader a read and a listing, and other followers a read.
		for i, c := range all {
			n := h.requests(zktest.OpGetData, c.conn.SessionID()).Count() + h.requests(zktest.OpGetChildren2, c.conn.SessionID()).Count()
			require.Equal(h, []int{0, 4, 4}[i], n)
		}
		h.srv.ResetLog()
		for _, c := range all {
			c.requireQuiet(20 * time.Second)
		}
		require.Zero(h, h.srv.Log().Requests().Count()-h.requests(zktest.OpMulti, 0).Count(), "only proofs at rest")

		require.NoError(h, f1.Resign())
		h.advance(0)
		f2.requireFollows(leader)
		require.Equal(h, f1.ID(), f2.newest().WasFollowing)
		require.NoError(h, h.operator.Delete(leader.ID(), -1))
		h.advance(0)
		f2.requireLeads()
		h.advance(time.Second)
		require.ErrorIs(h, leader.requireOver(), leaderelection.ErrCandidateDeleted)
		_, err := h.operator.Set(f2.ID(), []byte("changed again"), -1)
		require.NoError(h, err)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(time.Second)
		require.ErrorIs(h, f2.requireOver(), leaderelection.ErrElectionOver)
	})
}

// C3: after such a change the end of a follower's session was told as that of
// the election.
func TestWatch_SessionExpiresAfterDataChange(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, f1, f2 := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		for _, c := range []*candidate{leader, f1} {
			_, err := h.operator.Set(c.ID(), []byte("changed"), -1)
			require.NoError(h, err)
		}
		h.advance(0)
		require.NoError(h, h.srv.ExpireSession(f1.conn.SessionID()))
		h.advance(0)
		f2.requireFollows(leader)
		h.advance(timeout)
		require.ErrorIs(h, f1.requireOver(), leaderelection.ErrSessionExpired)
		leader.requireLeads()
	})
}

// C10: a predecessor that went between the listing and the watch was followed
// all the same, by a status of its own and by a second goroutine.
func TestWatch_PredecessorLeavesBeforeWatch(t *testing.T) {
	for name, isLeader := range map[string]bool{"the leader": true, "another one": false} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader := h.join(h.connect())
				vanishes := leader
				if !isLeader {
					vanishes = h.join(h.connect())
				}
				conn := h.connect()
				listed := h.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Session: conn.SessionID(), Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					assert.NoError(h, vanishes.Resign())
					return zktest.Pass(q)
				})
				c := h.join(conn)
				<-listed.Ran()
				if isLeader {
					c.requireLeads()
				} else {
					c.requireFollows(leader)
					require.Empty(h, c.newest().WasFollowing)
				}
				require.Len(h, c.received(), 1, "no status about the one that is gone")
				require.Empty(h, h.srv.Watches(vanishes.ID()), "and no watch")
				c.requireQuiet(timeout)

				// The next turn is as any other.
				if !isLeader {
					require.NoError(h, leader.Resign())
					h.advance(0)
					c.requireLeads()
					require.Len(h, c.received(), 2)
				}
			})
		})
	}
}

// C17: the watches of all followers that had resigned remained, in the client and in
// the server, until they fired. There is one for each connection now.
func TestWatch_ResignedFollowers(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, conn := h.join(h.connect()), h.connect()
		session := conn.SessionID()
		own := []zktest.Watch{{Session: leader.conn.SessionID(), Path: leader.ID(), Kind: zktest.ChildWatch}}
		for range 20 {
			follower := h.join(conn)
			follower.requireFollows(leader)
			require.Equal(h, []zktest.Watch{
				own[0],
				{Session: session, Path: leader.ID(), Kind: zktest.DataWatch},
				{Session: session, Path: follower.ID(), Kind: zktest.ChildWatch},
			}, sortWatches(h.srv.Watches(), leader.ID()), "the own znode and the predecessor, and nobody watches the election node")
			require.NoError(h, follower.Resign())
			require.Equal(h, []zktest.Watch{
				own[0],
				{Session: session, Path: leader.ID(), Kind: zktest.DataWatch},
			}, sortWatches(h.srv.Watches(), leader.ID()))
			require.Equal(h, 1, clientWatches(conn))
		}
		leader.requireLeads()
		require.Len(h, leader.received(), 1)
		leader.resign()
		h.advance(0)
		require.Empty(h, h.srv.Watches())
		require.Zero(h, clientWatches(conn))
	})
}

// sortWatches has the watches of one path first, the rest behind.
func sortWatches(watches []zktest.Watch, first string) (out []zktest.Watch) {
	var rest []zktest.Watch
	for _, watch := range watches {
		switch {
		case watch.Path != first:
			rest = append(rest, watch)
		case watch.Kind == zktest.ChildWatch:
			out = append([]zktest.Watch{watch}, out...)
		default:
			out = append(out, watch)
		}
	}
	return append(out, rest...)
}

// After a reconnect the client sets its watches anew, and gives up when the
// server refuses that. What has happened meanwhile is found out all the same.
// (What happens later is not: docs/design.md, Limits.)
func TestWatch_SetWatchesFails(t *testing.T) {
	for name, test := range map[string]struct {
		ahead   int
		happens func(h *harness, ahead []*candidate, c *candidate) error
		then    func(h *harness, ahead []*candidate, c *candidate)
	}{
		"second in line, the leader goes": {
			1,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[0].Resign() },
			func(_ *harness, _ []*candidate, c *candidate) { c.requireLeads() },
		},
		"second in line, the own znode goes": {
			1,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, the predecessor goes": {
			2,
			func(_ *harness, ahead []*candidate, _ *candidate) error { return ahead[1].Resign() },
			func(_ *harness, ahead []*candidate, c *candidate) { c.requireFollows(ahead[0]) },
		},
		"third in line, the own znode goes": {
			2,
			func(h *harness, _ []*candidate, c *candidate) error { return h.operator.Delete(c.ID(), -1) },
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			},
		},
		"third in line, everything goes": {
			2,
			func(h *harness, _ []*candidate, _ *candidate) error {
				return leaderelection.DeleteElection(h.operator, node)
			},
			func(h *harness, _ []*candidate, c *candidate) {
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			},
		},
	} {
		for how, fault := range map[string]zktest.HookFunc{"refused": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
			t.Run(name+", "+how, func(t *testing.T) {
				withServers(t, 2, func(h *harness) {
					var ahead []*candidate
					for range test.ahead {
						ahead = append(ahead, h.join(h.connect()))
					}
					conn := h.connect()
					c := h.join(conn)
					c.requireFollows(ahead[test.ahead-1])
					h.advance(time.Second)
					met := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
					h.whileDisconnected(conn, func() { assert.NoError(h, test.happens(h, ahead, c)) })
					<-met.Ran()
					h.advance(timeout / 4)
					test.then(h, ahead, c)
				})
			})
		}
	}
}

// CURATOR-107, helix #44: asking whether a predecessor exists that has vanished
// leaves a watch on nothing, and without another look nobody ever wakes.
func TestTrap24_PredecessorDoesNotExist(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a lost answer %v", lost), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				ahead := h.createContender()
				if lost {
					h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: 1}, zktest.Cut)
				}
				reads := 1
				if lost {
					reads = 2
				}
				gone := h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: reads}, func(q *zktest.Request) zktest.Verdict {
					_ = h.operator.Delete(ahead, -1)
					return zktest.Pass(q)
				})
				c := h.join(h.connect())
				h.advance(timeout)
				h.requireMet(gone)
				c.requireLeads()
				require.Equal(h, []string{c.ID()}, h.watchedPaths())
				want := 1
				if lost {
					want = 2 // the watch on its own znode was set again after the reconnect
				}
				require.Equal(h, want, clientWatches(c.conn))
			})
		})
	}
}

// kazoo #175, CURATOR-14, CURATOR-240, go-zookeeper #76: each new try sets another
// watch and abandons the last one.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		c := h.join(conn)
		most := 2
		watched := []string{ahead, c.ID()}
		set := func() {
			h.Helper()
			require.ElementsMatch(h, watched, h.watchedPaths())
			require.LessOrEqual(h, clientWatches(conn), most)
		}
		set()
		most = 12 // the own one is set again after each break, up to a limit
		for i := range 20 {
			_, err := h.operator.Set(ahead, fmt.Append(nil, i), -1)
			require.NoError(h, err)
			h.advance(0)
			set()
			h.eachServer(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			h.advance(timeout / 5)
			set()
		}
		require.Len(h, c.received(), 1)
		// Others come and go behind it, and leave one watch.
		watched, most = append(watched, c.ID()), most+1
		for range 10 {
			other := h.join(conn)
			other.requireFollows(c)
			other.resign()
			h.advance(0)
			set()
		}
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		c.resign()
		h.advance(0)
		require.Empty(h, h.watchedPaths())
		require.Zero(h, clientWatches(conn))
	})
}

// CURATOR-258, CURATOR-329: an unrelated event uses up the watch, and nobody sets
// it anew.
func TestTrap26_UnrelatedEvents(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect())
		last := h.join(h.connect())
		writeRegister := func(path string, data string) {
			_, err := h.operator.Set(path, []byte(data), -1)
			require.NoError(h, err)
			h.advance(0)
		}
		for i := range 5 {
			for _, path := range []string{node, ahead, c.ID(), last.ID()} {
				writeRegister(path, fmt.Sprint(i))
				require.ElementsMatch(h, []string{ahead, ahead, c.ID(), c.ID(), last.ID()}, h.watchedPaths())
			}
			_, err := h.operator.SetACL(ahead, zk.WorldACL(zk.PermAll), -1)
			require.NoError(h, err)
		}
		h.advance(timeout)
		require.Len(h, c.received(), 1)
		h.remove(ahead)
		h.advance(0)
		l := c.requireLeads()
		writeRegister(c.ID(), "the leader's own data")
		h.advance(timeout)
		require.NoError(h, l.Err())
		require.Len(h, last.received(), 1)
		h.remove(c.ID())
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
		last.requireLeads()
	})
}

// CURATOR-623, CURATOR-311, CURATOR-97: watches are lost with the session, or what
// they watch for happens while the connection is down.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Run("same session", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			first, second := h.createContender(), h.createContender()
			c := h.join(h.connect())
			for _, gone := range []string{second, first} {
				require.Equal(h, gone, c.newest().NowFollowing)
				h.disconnect(c.conn)
				h.remove(gone)
				h.advance(shortTime) // off the instants at which the library looks by itself
				h.reconnect()
			}
			c.requireLeads()
			c.requireOnlyCandidate()
		})
	})
	// The client library gives up setting watches anew when that fails once.
	for k, name := range []string{"predecessor", "own znode", "own znode, leading"} {
		t.Run("never set anew, "+name, func(t *testing.T) {
			withServers(t, 3, func(h *harness) {
				first, second := h.createContender(), h.createContender()
				c := h.join(h.connect(), leaderelection.WithRejoin())
				require.Equal(h, second, c.newest().NowFollowing)
				gone := []string{second, c.ID(), c.ID()}[k]
				if k == 2 {
					h.remove(second)
					h.remove(first)
					h.advance(0)
					c.requireLeads()
				}
				h.disconnect(c.conn)
				h.remove(gone)
				failed := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zktest.Code(-99)))
				h.advance(shortTime)
				h.reconnect()
				h.advance(timeout)
				h.requireMet(failed)
				if gone == second {
					require.Equal(h, first, c.newest().NowFollowing)
					h.requireIDs(first, c.ID())
					require.Len(h, h.createdIDs(), 3)
				} else {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
				}
			})
		})
	}
	t.Run("new session", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			c := h.join(h.connect(), leaderelection.WithRejoin())
			old := c.ID()
			h.expire(c.conn)
			h.advance(timeout)
			c.requireNeverLed()
			require.NotEqual(h, old, c.ID())
			require.Equal(h, ahead, c.newest().NowFollowing)
			h.remove(ahead)
			h.advance(0)
			c.requireLeads()
			c.requireOnlyCandidate()
		})
	})
	for _, leading := range []bool{true, false} {
		t.Run(fmt.Sprintf("own znode, leading %v", leading), func(t *testing.T) {
			withServers(t, 3, func(h *harness) {
				if !leading {
					h.createContender()
				}
				c := h.join(h.connect())
				h.disconnect(c.conn)
				h.remove(c.ID())
				h.advance(shortTime)
				h.reconnect()
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			})
		})
	}
}

// CURATOR-391: what is deleted and created anew, with the versions of before,
// while nobody looks, is taken for the same.
func TestTrap28_RecreatedWhileDisconnected(t *testing.T) {
	// anew replaces a znode by one of the same name.
	anew := func(h *harness, path string, flags int32) {
		h.remove(path)
		_, err := h.operator.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
	}
	t.Run("the election node", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			c := h.join(h.connect())
			h.disconnect(c.conn)
			h.remove(c.ID())
			anew(h, node, 0)
			h.advance(shortTime)
			h.reconnect()
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			h.requireIDs()
		})
	})
	t.Run("the predecessor", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			c := h.join(h.connect())
			h.disconnect(c.conn)
			anew(h, ahead, zk.FlagEphemeral)
			h.advance(shortTime)
			h.reconnect()
			c.requireNeverLed()
			require.Equal(h, ahead, c.newest().NowFollowing)
			h.remove(ahead)
			h.advance(0)
			c.requireLeads()
		})
	})
	t.Run("the own znode, by somebody else", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			c := h.join(h.connect())
			h.disconnect(c.conn)
			anew(h, c.ID(), zk.FlagEphemeral)
			h.remove(ahead)
			h.advance(shortTime)
			h.reconnect()
			require.Error(h, c.requireOver())
			c.requireNeverLed()
		})
	})
	t.Run("the leader, for an observer", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			ahead := h.createContender()
			ctx, cancel := context.WithCancel(h.Context())
			defer cancel()
			conn := h.connect()
			seen, err := leaderelection.Observe(ctx, conn, node)
			require.NoError(h, err)
			h.advance(0)
			require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
			h.disconnect(conn)
			anew(h, ahead, zk.FlagEphemeral)
			h.reconnect()
			require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
		})
	})
}

// ZooKeeper's recipes page: everybody watches the first, or the parent, and all
// wake when one goes.
func TestTrap52_Herd(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		const count = 20
		var all []*candidate
		var want []string
		for range count {
			c := h.join(h.connect())
			all = append(all, c)
			want = append(want, c.ID()) // its own watch, and those on the two candidates before it
			for _, earlier := range all[max(0, len(all)-3) : len(all)-1] {
				want = append(want, earlier.ID())
			}
		}
		require.ElementsMatch(h, want, h.watchedPaths())
		h.advance(timeout)
		for _, gone := range []int{count / 2, 0} { // one in the middle, and the leader
			h.srv.ResetLog()
			all[gone].resign()
			woken := []int64{all[gone].conn.SessionID(), all[gone+1].conn.SessionID(), all[gone+2].conn.SessionID()}
			require.ElementsMatch(h, woken, h.srv.Log().Woken(all[gone].ID()))
			for _, e := range h.srv.Log() {
				if e.Op == zktest.OpGetChildren2 || e.Op == zktest.OpNotification {
					require.Contains(h, woken, e.Session)
				}
			}
		}
		all[1].requireLeads()
	})
}

// A follower that has left leaves its watch, which is lost at a reconnect. The next
// follower on the connection notices the end of the leader all the same.
func TestTrap27_PooledWatchIsLost(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, conn := h.join(h.connect()), h.connect()
		first := h.join(conn)
		first.requireFollows(leader)
		first.resign()
		h.advance(0)
		refused := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		h.srv.DropConnections(conn.SessionID())
		h.advance(timeout)
		h.requireMet(refused)
		require.Empty(h, h.srv.Watches()[1:])
		second := h.join(conn)
		second.requireFollows(leader)
		h.advance(3 * time.Second)
		leader.resign()
		h.advance(0)
		second.requireLeads()
	})
}

// A server refuses to set the watches of a follower again, and keeps the connection. The
// follower notices what happens later: the end of its predecessor, whether it is the
// second or not, and that of its own znode.
func TestTrap27_RejectedWatchesAreSetAgain(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		a, b, c := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		lose := func(x *candidate) {
			session := x.conn.SessionID()
			refused := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-127)))
			h.srv.DropConnections(session)
			h.advance(timeout / 2)
			h.requireMet(refused)
			require.Equal(h, session, x.conn.SessionID())
		}
		lose(c)
		b.resign()
		h.advance(0)
		c.requireFollows(a)
		lose(c)
		a.resign()
		h.advance(0)
		c.requireLeads()
		d := h.join(h.connect())
		e := h.join(h.connect())
		for _, x := range []*candidate{e, d} {
			lose(x)
			h.remove(x.ID())
			h.advance(timeout / 4)
			require.ErrorIs(h, x.requireOver(), leaderelection.ErrCandidateDeleted)
		}
	})
}
