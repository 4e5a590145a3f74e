package traptest

import (
	"fmt"
	"path"
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
func TestC03_DataChange(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, f1, f2 := w.enlist(w.connect()), w.enlist(w.connect()), w.enlist(w.connect())
		all := []*candidate{leader, f1, f2}
		w.pass(time.Second)
		w.srv.ResetLog()
		for _, c := range all {
			for range 2 {
				_, err := w.operator.Set(c.ID(), []byte("changed"), -1)
				require.NoError(w, err)
				w.pass(0)
			}
		}
		// A loop would not let fake time pass. Each change costs the direct follower of
		// the leader a read and a listing, and other followers a read.
		for i, c := range all {
			n := w.sent(zktest.OpGetData, c.conn.SessionID()).Count() + w.sent(zktest.OpGetChildren2, c.conn.SessionID()).Count()
			require.Equal(w, []int{0, 4, 4}[i], n)
		}
		w.srv.ResetLog()
		for _, c := range all {
			c.quiet(20 * time.Second)
		}
		require.Zero(w, w.srv.Log().Requests().Count()-w.sent(zktest.OpMulti, 0).Count(), "only proofs at rest")

		require.NoError(w, f1.Resign())
		w.pass(0)
		f2.follows(leader)
		require.Equal(w, f1.ID(), f2.last().WasFollowing)
		require.NoError(w, w.operator.Delete(leader.ID(), -1))
		w.pass(0)
		f2.leads()
		w.pass(time.Second)
		require.ErrorIs(w, leader.over(), leaderelection.ErrCandidateDeleted)
		_, err := w.operator.Set(f2.ID(), []byte("changed again"), -1)
		require.NoError(w, err)
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(time.Second)
		require.ErrorIs(w, f2.over(), leaderelection.ErrElectionOver)
	})
}

// C3: after such a change the end of a follower's session was told as that of
// the election.
func TestC03_ExpiryAfterDataChange(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, f1, f2 := w.enlist(w.connect()), w.enlist(w.connect()), w.enlist(w.connect())
		for _, c := range []*candidate{leader, f1} {
			_, err := w.operator.Set(c.ID(), []byte("changed"), -1)
			require.NoError(w, err)
		}
		w.pass(0)
		require.NoError(w, w.srv.ExpireSession(f1.conn.SessionID()))
		w.pass(0)
		f2.follows(leader)
		w.pass(timeout)
		require.ErrorIs(w, f1.over(), leaderelection.ErrSessionExpired)
		leader.leads()
	})
}

// C9: an error in the midst of a later election was told and then nothing more
// happened: the candidate stood in the way of those behind it.
func TestC09_ErrorLater(t *testing.T) {
	for _, fault := range []struct {
		op   zktest.Op
		with error
		end  error // nil: it goes on
	}{
		{zktest.OpGetChildren2, zk.ErrNoAuth, leaderelection.ErrPermission},
		{zktest.OpGetData, zk.ErrNoAuth, leaderelection.ErrPermission},
		{zktest.OpGetChildren2, zk.ErrBadArguments, zk.ErrBadArguments},
		{zktest.OpGetData, zk.ErrBadArguments, zk.ErrBadArguments},
		{zktest.OpGetChildren2, zktest.Code(-127), nil}, // throttled
		{zktest.OpGetData, zktest.Code(-127), nil},
		{zktest.OpGetChildren2, zktest.Code(-4), nil}, // connection loss
		{zktest.OpGetData, zktest.Code(-4), nil},
	} {
		t.Run(fmt.Sprintf("%v is answered with %v", fault.op, fault.with), func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader, middle := w.enlist(w.connect()), w.enlist(w.connect())
				c, last := w.enlist(w.connect()), w.enlist(w.connect())
				c.follows(middle)
				hook := w.srv.Before(zktest.Match{Op: fault.op, Session: c.conn.SessionID(), Nth: 1}, zktest.Fail(fault.with))
				if fault.op == zktest.OpGetData {
					// Candidates read a predecessor again after a change of its data.
					_, err := w.operator.Set(middle.ID(), nil, -1)
					require.NoError(w, err)
				} else {
					require.NoError(w, middle.Resign())
				}
				w.pass(100 * time.Millisecond)
				select {
				case <-hook.Ran():
				default:
					require.Fail(w, "nothing was asked for")
				}
				if fault.op == zktest.OpGetData {
					require.NoError(w, middle.Resign())
					w.pass(0)
				}
				if fault.end == nil {
					c.follows(leader)
					last.follows(c)
					require.Equal(w, 2, len(c.all()))
					return
				}
				require.ErrorIs(w, c.over(), fault.end)
				require.ErrorIs(w, c.last().Err, fault.end)
				w.stands(line(leader, last)...)
				last.follows(leader)
				require.NoError(w, leader.Resign())
				w.pass(0)
				last.leads()
			})
		})
	}
}

// C10: a predecessor that went between the listing and the watch was followed
// all the same, by a status of its own and by a second goroutine.
func TestC10_VanishedPredecessor(t *testing.T) {
	for name, isLeader := range map[string]bool{"the leader": true, "another one": false} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader := w.enlist(w.connect())
				vanishes := leader
				if !isLeader {
					vanishes = w.enlist(w.connect())
				}
				conn := w.connect()
				listed := w.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Session: conn.SessionID(), Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					assert.NoError(w, vanishes.Resign())
					return zktest.Pass(q)
				})
				c := w.enlist(conn)
				<-listed.Ran()
				if isLeader {
					c.leads()
				} else {
					c.follows(leader)
					require.Empty(w, c.last().WasFollowing)
				}
				require.Len(w, c.all(), 1, "no status about the one that is gone")
				require.Empty(w, w.srv.Watches(vanishes.ID()), "and no watch")
				c.quiet(timeout)

				// The next turn is as any other.
				if !isLeader {
					require.NoError(w, leader.Resign())
					w.pass(0)
					c.leads()
					require.Len(w, c.all(), 2)
				}
			})
		})
	}
}

// C17: the watches of all followers that had resigned remained, in the client and in
// the server, until they fired. There is one for each connection now.
func TestC17_WatchLeak(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, conn := w.enlist(w.connect()), w.connect()
		session := conn.SessionID()
		own := []zktest.Watch{{Session: leader.conn.SessionID(), Path: leader.ID(), Kind: zktest.ChildWatch}}
		for range 20 {
			follower := w.enlist(conn)
			follower.follows(leader)
			require.Equal(w, []zktest.Watch{
				own[0],
				{Session: session, Path: leader.ID(), Kind: zktest.DataWatch},
				{Session: session, Path: follower.ID(), Kind: zktest.ChildWatch},
			}, sorted(w.srv.Watches(), leader.ID()), "the own znode and the predecessor, and nobody watches the election node")
			require.NoError(w, follower.Resign())
			require.Equal(w, []zktest.Watch{
				own[0],
				{Session: session, Path: leader.ID(), Kind: zktest.DataWatch},
			}, sorted(w.srv.Watches(), leader.ID()))
			require.Equal(w, 1, clientWatches(conn))
		}
		leader.leads()
		require.Len(w, leader.all(), 1)
		leader.resign()
		w.pass(0)
		require.Empty(w, w.srv.Watches())
		require.Zero(w, clientWatches(conn))
	})
}

// sorted has the watches of one path first, the rest behind.
func sorted(watches []zktest.Watch, first string) (out []zktest.Watch) {
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

// C11: a child that sorted first kept everybody from leading, and any name with
// DONE in it ended the election.
func TestC11_ForeignChildren(t *testing.T) {
	play(t, 1, func(w *world) {
		foreign := []string{"!", "0000000000", "ABANDONED", "DONE-not", "NOT-DONE", "config", "le_x", "le_00000000000", "_c_", "_c_short-latch-"}
		for _, name := range foreign {
			_, err := w.operator.Create(path.Join(node, name), nil, 0, anybody)
			require.NoError(w, err)
		}
		leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
		leader.leads()
		follower.follows(leader)
		all, err := leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		require.Len(w, all, 2)
		// One that comes and goes later is nobody's business either.
		late := path.Join(node, "a-DONE")
		_, err = w.operator.Create(late, nil, 0, anybody)
		require.NoError(w, err)
		require.NoError(w, w.operator.Delete(late, -1))
		leader.quiet(timeout)
		follower.quiet(timeout)
		require.NoError(w, leader.Resign())
		w.pass(0)
		follower.leads()

		// They are not deleted with the election.
		require.ErrorIs(w, follower.EndElection(), leaderelection.ErrForeignChildren)
		follower.leads()
		w.stands(append(foreign, line(follower)...)...)
	})
}
