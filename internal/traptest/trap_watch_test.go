package traptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-107, helix #44: asking whether a predecessor exists that has vanished
// leaves a watch on nothing, and without another look nobody ever wakes.
func TestTrap24_PredecessorVanishes(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a lost answer %v", lost), func(t *testing.T) {
			play(t, 1, func(w *world) {
				ahead := w.stand(w.operator)
				if lost {
					w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: 1}, zktest.Cut)
				}
				reads := 1
				if lost {
					reads = 2
				}
				gone := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead, Nth: reads}, func(q *zktest.Request) zktest.Verdict {
					_ = w.operator.Delete(ahead, -1)
					return zktest.Pass(q)
				})
				c := w.enlist(w.connect())
				w.pass(timeout)
				w.ran(gone)
				c.leads()
				require.Equal(w, []string{c.ID()}, w.watched())
				want := 1
				if lost {
					want = 2 // the watch on its own znode was set again after the reconnect
				}
				require.Equal(w, want, clientWatches(c.conn))
			})
		})
	}
}

// kazoo #175, CURATOR-14, CURATOR-240, go-zookeeper #76: each new try sets another
// watch and abandons the last one.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	play(t, 3, func(w *world) {
		conn := w.connect()
		ahead := w.stand(w.operator)
		c := w.enlist(conn)
		most := 2
		watched := []string{ahead, c.ID()}
		set := func() {
			w.Helper()
			require.ElementsMatch(w, watched, w.watched())
			require.LessOrEqual(w, clientWatches(conn), most)
		}
		set()
		most = 12 // the own one is set again after each break, up to a limit
		for i := range 20 {
			_, err := w.operator.Set(ahead, fmt.Append(nil, i), -1)
			require.NoError(w, err)
			w.pass(0)
			set()
			w.servers(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			w.pass(timeout / 5)
			set()
		}
		require.Len(w, c.all(), 1)
		// Others come and go behind it, and leave one watch.
		watched, most = append(watched, c.ID()), most+1
		for range 10 {
			other := w.enlist(conn)
			other.follows(c)
			other.resign()
			w.pass(0)
			set()
		}
		w.remove(ahead)
		w.pass(0)
		c.leads()
		c.resign()
		w.pass(0)
		require.Empty(w, w.watched())
		require.Zero(w, clientWatches(conn))
	})
}

// CURATOR-258, CURATOR-329: an unrelated event uses up the watch, and nobody sets
// it anew.
func TestTrap26_UnrelatedEvents(t *testing.T) {
	play(t, 1, func(w *world) {
		ahead := w.stand(w.operator)
		c := w.enlist(w.connect())
		last := w.enlist(w.connect())
		write := func(path string, data string) {
			_, err := w.operator.Set(path, []byte(data), -1)
			require.NoError(w, err)
			w.pass(0)
		}
		for i := range 5 {
			for _, path := range []string{node, ahead, c.ID(), last.ID()} {
				write(path, fmt.Sprint(i))
				require.ElementsMatch(w, []string{ahead, ahead, c.ID(), c.ID(), last.ID()}, w.watched())
			}
			_, err := w.operator.SetACL(ahead, zk.WorldACL(zk.PermAll), -1)
			require.NoError(w, err)
		}
		w.pass(timeout)
		require.Len(w, c.all(), 1)
		w.remove(ahead)
		w.pass(0)
		l := c.leads()
		write(c.ID(), "the leader's own data")
		w.pass(timeout)
		require.NoError(w, l.Err())
		require.Len(w, last.all(), 1)
		w.remove(c.ID())
		w.pass(moment)
		require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
		last.leads()
	})
}

// CURATOR-623, CURATOR-311, CURATOR-97: watches are lost with the session, or what
// they watch for happens while the connection is down.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Run("same session", func(t *testing.T) {
		play(t, 3, func(w *world) {
			first, second := w.stand(w.operator), w.stand(w.operator)
			c := w.enlist(w.connect())
			for _, gone := range []string{second, first} {
				require.Equal(w, gone, c.last().NowFollowing)
				w.cut(c.conn)
				w.remove(gone)
				w.pass(moment) // off the instants at which the library looks by itself
				w.restore()
			}
			c.leads()
			c.alone()
		})
	})
	// The client library gives up setting watches anew when that fails once.
	for k, name := range []string{"predecessor", "own znode", "own znode, leading"} {
		t.Run("never set anew, "+name, func(t *testing.T) {
			play(t, 3, func(w *world) {
				first, second := w.stand(w.operator), w.stand(w.operator)
				c := w.enlist(w.connect(), leaderelection.WithRejoin())
				require.Equal(w, second, c.last().NowFollowing)
				gone := []string{second, c.ID(), c.ID()}[k]
				if k == 2 {
					w.remove(second)
					w.remove(first)
					w.pass(0)
					c.leads()
				}
				w.cut(c.conn)
				w.remove(gone)
				failed := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zktest.Code(-99)))
				w.pass(moment)
				w.restore()
				w.pass(timeout)
				w.ran(failed)
				if gone == second {
					require.Equal(w, first, c.last().NowFollowing)
					w.line(first, c.ID())
					require.Len(w, w.created(), 3)
				} else {
					require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
				}
			})
		})
	}
	t.Run("new session", func(t *testing.T) {
		play(t, 3, func(w *world) {
			ahead := w.stand(w.operator)
			c := w.enlist(w.connect(), leaderelection.WithRejoin())
			old := c.ID()
			w.expire(c.conn)
			w.pass(timeout)
			c.never()
			require.NotEqual(w, old, c.ID())
			require.Equal(w, ahead, c.last().NowFollowing)
			w.remove(ahead)
			w.pass(0)
			c.leads()
			c.alone()
		})
	})
	for _, leading := range []bool{true, false} {
		t.Run(fmt.Sprintf("own znode, leading %v", leading), func(t *testing.T) {
			play(t, 3, func(w *world) {
				if !leading {
					w.stand(w.operator)
				}
				c := w.enlist(w.connect())
				w.cut(c.conn)
				w.remove(c.ID())
				w.pass(moment)
				w.restore()
				require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
			})
		})
	}
}

// CURATOR-391: what is deleted and created anew, with the versions of before,
// while nobody looks, is taken for the same.
func TestTrap28_CreatedAnewMeanwhile(t *testing.T) {
	// anew replaces a znode by one of the same name.
	anew := func(w *world, path string, flags int32) {
		w.remove(path)
		_, err := w.operator.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
	}
	t.Run("the election node", func(t *testing.T) {
		play(t, 3, func(w *world) {
			c := w.enlist(w.connect())
			w.cut(c.conn)
			w.remove(c.ID())
			anew(w, node, 0)
			w.pass(moment)
			w.restore()
			require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
			w.line()
		})
	})
	t.Run("the predecessor", func(t *testing.T) {
		play(t, 3, func(w *world) {
			ahead := w.stand(w.operator)
			c := w.enlist(w.connect())
			w.cut(c.conn)
			anew(w, ahead, zk.FlagEphemeral)
			w.pass(moment)
			w.restore()
			c.never()
			require.Equal(w, ahead, c.last().NowFollowing)
			w.remove(ahead)
			w.pass(0)
			c.leads()
		})
	})
	t.Run("the own znode, by somebody else", func(t *testing.T) {
		play(t, 3, func(w *world) {
			ahead := w.stand(w.operator)
			c := w.enlist(w.connect())
			w.cut(c.conn)
			anew(w, c.ID(), zk.FlagEphemeral)
			w.remove(ahead)
			w.pass(moment)
			w.restore()
			require.Error(w, c.over())
			c.never()
		})
	})
	t.Run("the leader, for an observer", func(t *testing.T) {
		play(t, 3, func(w *world) {
			ahead := w.stand(w.operator)
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			conn := w.connect()
			seen, err := leaderelection.Observe(ctx, conn, node)
			require.NoError(w, err)
			w.pass(0)
			require.Equal(w, w.stat(ahead).Czxid, receive(w, seen).Leader.Token)
			w.cut(conn)
			anew(w, ahead, zk.FlagEphemeral)
			w.restore()
			require.Equal(w, w.stat(ahead).Czxid, receive(w, seen).Leader.Token)
		})
	})
}

// CURATOR-344, TN1, marathon #4640: whoever does not take what is delivered holds
// everything up. Nobody reads here, until the end of what was told.
func TestTrap30_SlowReader(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.NoError(w, err)
		result := async(e.ElectLeader)
		w.pass(0)
		told := receive(w, e.Status())
		require.Equal(w, leaderelection.Leader, told.Role)
		other := w.enlist(conn)
		for range 3 {
			w.pass(timeout)
			w.srv.Blackhole(zktest.BothWays, conn.SessionID())
			w.pass(timeout * 5 / 8) // longer than a lease, and not so long that the client dials
			require.Equal(w, leaderelection.Suspended, e.Current().Role)
			w.srv.Heal()
			w.pass(timeout / 2)
			require.Equal(w, leaderelection.Leader, e.Current().Role)
		}
		require.Equal(w, e.ID(), other.last().NowFollowing)
		require.Len(w, other.all(), 1)
		require.Equal(w, leaderelection.Suspended, receive(w, e.Status()).Role, "the end of what was told")
		again := receive(w, e.Status())
		require.Same(w, e.Current().Leadership, again.Leadership)
		require.NoError(w, again.Leadership.Err())
		require.Empty(w, e.Status(), "what was missed is not kept")

		w.remove(e.ID())
		w.pass(moment)
		require.ErrorIs(w, receive(w, result), leaderelection.ErrCandidateDeleted)
		other.leads()
		last := receive(w, e.Status())
		for s := range e.Status() {
			last = s
		}
		require.ErrorIs(w, last.Err, leaderelection.ErrCandidateDeleted)
	})
}

// ZooKeeper's recipes page: everybody watches the first, or the parent, and all
// wake when one goes.
func TestTrap52_Herd(t *testing.T) {
	play(t, 1, func(w *world) {
		const count = 20
		var all []*candidate
		var want []string
		for range count {
			c := w.enlist(w.connect())
			all = append(all, c)
			want = append(want, c.ID()) // its own watch, and those on the two candidates before it
			for _, earlier := range all[max(0, len(all)-3) : len(all)-1] {
				want = append(want, earlier.ID())
			}
		}
		require.ElementsMatch(w, want, w.watched())
		w.pass(timeout)
		for _, gone := range []int{count / 2, 0} { // one in the middle, and the leader
			w.srv.ResetLog()
			all[gone].resign()
			woken := []int64{all[gone].conn.SessionID(), all[gone+1].conn.SessionID(), all[gone+2].conn.SessionID()}
			require.ElementsMatch(w, woken, w.srv.Log().Woken(all[gone].ID()))
			for _, e := range w.srv.Log() {
				if e.Op == zktest.OpGetChildren2 || e.Op == zktest.OpNotification {
					require.Contains(w, woken, e.Session)
				}
			}
		}
		all[1].leads()
	})
}

// samuel #153: the client library drops session events when nobody reads them.
func TestTrap55_EventsDropped(t *testing.T) {
	play(t, 3, func(w *world) {
		conn, events, err := w.ensemble.ConnectFrom(0, timeout)
		require.NoError(w, err)
		w.pass(0)
		c, next := w.enlist(conn), w.enlist(w.connect())
		for range 5 {
			w.servers(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
			w.pass(timeout / 5)
		}
		require.Len(w, events, cap(events))
		l := c.leads()
		w.pass(timeout/4 + moment)
		w.cut(conn)
		w.suspendsInTime(c, l)
		w.pass(w.session(c).ExpiresIn)
		next.leads()
		w.restore()
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
	})
}

// A follower that has left leaves its watch, which is lost at a reconnect. The next
// follower on the connection notices the end of the leader all the same.
func TestTrap27_LeftWatchIsLost(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, conn := w.enlist(w.connect()), w.connect()
		first := w.enlist(conn)
		first.follows(leader)
		first.resign()
		w.pass(0)
		refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		w.srv.DropConnections(conn.SessionID())
		w.pass(timeout)
		w.ran(refused)
		require.Empty(w, w.srv.Watches()[1:])
		second := w.enlist(conn)
		second.follows(leader)
		w.pass(3 * time.Second)
		leader.resign()
		w.pass(0)
		second.leads()
	})
}

// A server refuses to set the watches of a follower again, and keeps the connection. The
// follower notices what happens later: the end of its predecessor, whether it is the
// second or not, and that of its own znode.
func TestTrap27_RefusedWatchesAreSetAgain(t *testing.T) {
	play(t, 1, func(w *world) {
		a, b, c := w.enlist(w.connect()), w.enlist(w.connect()), w.enlist(w.connect())
		lose := func(x *candidate) {
			session := x.conn.SessionID()
			refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-127)))
			w.srv.DropConnections(session)
			w.pass(timeout / 2)
			w.ran(refused)
			require.Equal(w, session, x.conn.SessionID())
		}
		lose(c)
		b.resign()
		w.pass(0)
		c.follows(a)
		lose(c)
		a.resign()
		w.pass(0)
		c.leads()
		d := w.enlist(w.connect())
		e := w.enlist(w.connect())
		for _, x := range []*candidate{e, d} {
			lose(x)
			w.remove(x.ID())
			w.pass(timeout / 4)
			require.ErrorIs(w, x.over(), leaderelection.ErrCandidateDeleted)
		}
	})
}
