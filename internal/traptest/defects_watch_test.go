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
func TestC03_ExpiryAfterDataChange(t *testing.T) {
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
			withServers(t, 1, func(h *harness) {
				leader, middle := h.join(h.connect()), h.join(h.connect())
				c, last := h.join(h.connect()), h.join(h.connect())
				c.requireFollows(middle)
				hook := h.srv.Before(zktest.Match{Op: fault.op, Session: c.conn.SessionID(), Nth: 1}, zktest.Fail(fault.with))
				if fault.op == zktest.OpGetData {
					// Candidates read a predecessor again after a change of its data.
					_, err := h.operator.Set(middle.ID(), nil, -1)
					require.NoError(h, err)
				} else {
					require.NoError(h, middle.Resign())
				}
				h.advance(100 * time.Millisecond)
				select {
				case <-hook.Ran():
				default:
					require.Fail(h, "nothing was asked for")
				}
				if fault.op == zktest.OpGetData {
					require.NoError(h, middle.Resign())
					h.advance(0)
				}
				if fault.end == nil {
					c.requireFollows(leader)
					last.requireFollows(c)
					require.Equal(h, 2, len(c.received()))
					return
				}
				require.ErrorIs(h, c.requireOver(), fault.end)
				require.ErrorIs(h, c.newest().Err, fault.end)
				h.requireChildren(names(leader, last)...)
				last.requireFollows(leader)
				require.NoError(h, leader.Resign())
				h.advance(0)
				last.requireLeads()
			})
		})
	}
}

// C10: a predecessor that went between the listing and the watch was followed
// all the same, by a status of its own and by a second goroutine.
func TestC10_VanishedPredecessor(t *testing.T) {
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
func TestC17_WatchLeak(t *testing.T) {
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
			}, sorted(h.srv.Watches(), leader.ID()), "the own znode and the predecessor, and nobody watches the election node")
			require.NoError(h, follower.Resign())
			require.Equal(h, []zktest.Watch{
				own[0],
				{Session: session, Path: leader.ID(), Kind: zktest.DataWatch},
			}, sorted(h.srv.Watches(), leader.ID()))
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
	withServers(t, 1, func(h *harness) {
		foreign := []string{"!", "0000000000", "ABANDONED", "DONE-not", "NOT-DONE", "config", "le_x", "le_00000000000", "_c_", "_c_short-latch-"}
		for _, name := range foreign {
			_, err := h.operator.Create(path.Join(node, name), nil, 0, openACL)
			require.NoError(h, err)
		}
		leader, follower := h.join(h.connect()), h.join(h.connect())
		leader.requireLeads()
		follower.requireFollows(leader)
		all, err := leaderelection.Candidates(h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, 2)
		// One that comes and goes later is nobody's business either.
		late := path.Join(node, "a-DONE")
		_, err = h.operator.Create(late, nil, 0, openACL)
		require.NoError(h, err)
		require.NoError(h, h.operator.Delete(late, -1))
		leader.requireQuiet(timeout)
		follower.requireQuiet(timeout)
		require.NoError(h, leader.Resign())
		h.advance(0)
		follower.requireLeads()

		// They are not deleted with the election.
		require.ErrorIs(h, follower.EndElection(), leaderelection.ErrForeignChildren)
		follower.requireLeads()
		h.requireChildren(append(foreign, names(follower)...)...)
	})
}
