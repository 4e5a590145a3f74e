package integrationtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// Trap 11: a candidate takes the first place although its znode is from the
// session before.
func TestTrap11_ZnodeOfPreviousSession(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWays(t, shortTimeout)
	node := newNode(t, admin)
	leader, _ := lead(t, admin, node)
	c := follow(t, conn, node, leader)
	last := follow(t, admin, node, c)

	old := conn.SessionID()
	expire(t, conn)
	leader.resign(t)
	last.leads(t)
	conn.link.restore()
	c.ends(t, leaderelection.ErrSessionExpired)
	goesOn(t, conn)
	require.NotEqual(t, old, conn.SessionID())
	require.Equal(t, []string{base(last)}, children(t, admin, node))
}

// Trap 11, where a znode of the candidate's name is there all the time, though
// it is somebody else's now.
func TestTrap11_ZnodeOfSomebodyElse(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWays(t, shortTimeout)
	node := newNode(t, admin)
	ahead := contender(t, admin, node)
	c := enlist(t, conn, node)
	require.Equal(t, ahead, c.next(t).NowFollowing)

	conn.link.cut()
	remove(t, admin, c.ID())
	_, err := admin.Create(c.ID(), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	remove(t, admin, ahead)
	conn.link.restore()
	for _, s := range c.rest(t) {
		require.NotEqual(t, leaderelection.Leader, s.Role, "%v", s)
	}
	require.Error(t, c.result(t))
}

// Trap 12: a lease that is reckoned from the moment at which the connection was
// seen to break ends after the session.
func TestTrap12_LeaseCountsFromTheLastProof(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	c, l := lead(t, conn, node)
	next := follow(t, admin, node, c)
	_, _, deleted, err := admin.ExistsW(c.ID())
	require.NoError(t, err)
	// By now the leader has a chain of proofs and the full lease.
	eventually(t, func() bool { return time.Until(l.Deadline()) > shortTimeout/3 }, "no proof arrives")

	conn.link.freeze()
	frozen := time.Now()
	await(t, l.Done(), "the end of the lease")
	lasted, left := time.Since(frozen), l.Deadline().Sub(frozen)
	state := conn.State()
	require.Equal(t, leaderelection.Suspended, c.next(t).Role)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	// The last proof was asked for before the loss, however late this process hears of its lease.
	require.Less(t, left, shortTimeout/2, "counted from the loss or later")
	require.Less(t, lasted, shortTimeout, "told late")
	select {
	case <-deleted:
		require.Fail(t, "the session has ended before the lease")
	default:
	}
	await(t, deleted, "the session's end")
	expired := time.Since(frozen)
	next.leads(t)
	t.Logf("session %v: Done after %v, when the client library said %v; the session ended after %v", shortTimeout,
		lasted.Round(time.Millisecond), state, expired.Round(time.Millisecond))
	conn.link.restore()
	c.ends(t, leaderelection.ErrSessionExpired)
}

// Trap 14: the holder is not told that the leadership is gone.
func TestTrap14_HolderIsTold(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name   string
		do     func(t *testing.T, admin, conn *client, c *candidate)
		reason error
		final  error // nil where there is no final status
	}{
		{"resigned", func(t *testing.T, _, _ *client, c *candidate) {
			electiontest.Confirm(t, c.Resign)
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(t *testing.T, admin, _ *client, c *candidate) {
			remove(t, admin, c.ID())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrCandidateDeleted},
		{"election over", func(t *testing.T, admin, _ *client, c *candidate) {
			require.NoError(t, leaderelection.DeleteElection(admin.Conn, parent(c)))
		}, nil, leaderelection.ErrElectionOver}, // told as soon as the znode has gone, for whatever reason
		{"session expired", func(t *testing.T, _, conn *client, _ *candidate) {
			expire(t, conn)
			conn.link.restore()
		}, leaderelection.ErrSessionExpired, leaderelection.ErrSessionExpired},
		{"connection closed", func(_ *testing.T, _, conn *client, _ *candidate) {
			conn.Close()
		}, nil, leaderelection.ErrConnClosed}, // as above
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectWays(t, shortTimeout)
			node := newNode(t, admin)
			c, l := lead(t, conn, node)
			told := inBackground(t, func() error {
				<-l.Done()
				return l.Err()
			})
			end.do(t, admin, conn, c)
			reason := await(t, told, "the end of the leadership")
			if end.reason != nil {
				require.ErrorIs(t, reason, end.reason)
			}
			if end.final == nil {
				c.closesSilently(t)
			} else {
				c.ends(t, end.final)
			}
			require.Equal(t, reason, l.Err(), "the reason does not change")
			require.Equal(t, leaderelection.Follower, c.Current().Role)
		})
	}
}

// Trap 16: a leader that was stopped goes on after another one has been
// elected, and writes. Here it has a lease far too long, which is as if it had
// just looked at the clock before it was stopped.
func TestTrap16_StoppedLeaderWrites(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	register, err := admin.Create(node+"-register", []byte("initial"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	handshake.Of(conn.Conn).Grant(time.Minute)
	c, old := lead(t, conn, node, forSession(time.Minute))
	next := follow(t, admin, node, c)

	conn.link.freeze()
	l := next.leads(t)
	require.NoError(t, old.Err(), "the old leader must still believe")
	require.Greater(t, l.Token(), old.Token(), "what checks tokens refuses the old leader's")
	written := inBackground(t, func() error {
		_, err := c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	_, err = next.Multi(&zk.SetDataRequest{Path: register, Data: []byte("new"), Version: -1})
	require.NoError(t, err)
	conn.link.restore()
	c.ends(t, leaderelection.ErrSessionExpired)
	if err := await(t, written, "the old leader's write"); err == nil {
		require.Fail(t, "the old leader has written")
	} else {
		require.True(t, isAny(err, leaderelection.ErrNotLeader, leaderelection.ErrUnconfirmed), "%v", err)
	}
	_, err = c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	data, stat, err := admin.Get(register)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	require.EqualValues(t, 1, stat.Version)
}

// Trap 16, where the old leader's write is on its way while the other one is
// elected.
func TestTrap16_WriteUnderWay(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	register, err := admin.Create(node+"-register", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	handshake.Of(conn.Conn).Grant(time.Minute)
	c, old := lead(t, conn, node, forSession(time.Minute))
	next := follow(t, admin, node, c)

	// The request leaves the client and is held on its way.
	for _, p := range conn.link {
		p.Blackhole(zkproxy.ClientToServer)
	}
	written := inBackground(t, func() error {
		_, err := c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	remove(t, admin, c.ID())
	l := next.leads(t)
	require.Greater(t, l.Token(), old.Token())
	conn.link.thaw()
	require.ErrorIs(t, await(t, written, "the old leader's write"), leaderelection.ErrNotLeader)
	require.Zero(t, statOf(t, admin, register).Version)
	c.ends(t, leaderelection.ErrCandidateDeleted)
}

// Trap 18: the client library goes on in a new session without anybody's having
// seen the old one expire.
func TestTrap18_NewSessionUnseen(t *testing.T) {
	t.Parallel()
	t.Run("while leading", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		c, l := lead(t, conn, node)
		next := follow(t, admin, node, c)
		expire(t, conn)
		next.leads(t)
		conn.link.restore()
		ends(t, l, leaderelection.ErrSessionExpired)
		c.ends(t, leaderelection.ErrSessionExpired)
		_, err := c.Multi()
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		require.Equal(t, []string{base(next)}, children(t, admin, node))
	})
	t.Run("while entering", func(t *testing.T) {
		t.Parallel()
		// The create is queued in one session and carried out in the next.
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		c := newCandidate(t, conn, node)
		old := conn.SessionID()
		expire(t, conn)
		c.start()
		t.Cleanup(func() { _ = c.Resign() })
		conn.link.restore()
		l := c.leads(t)
		require.NotEqual(t, old, conn.SessionID())
		onlyChild(t, admin, node, c, conn)
		require.Equal(t, statOf(t, admin, c.ID()).Czxid, l.Token())
		c.resign(t)
		require.Empty(t, children(t, admin, node))
	})
}

// Trap 21: a connection that flaps makes leadership flap.
func TestTrap21_Flapping(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWays(t, shortTimeout)
	node := newNode(t, admin)
	c, l := lead(t, conn, node)
	next := follow(t, conn, node, c)
	last := follow(t, admin, node, next)
	session := conn.SessionID()
	for range 8 {
		proven := l.Deadline()
		conn.link.drop()
		goesOn(t, conn)
		eventually(t, func() bool { return l.Deadline().After(proven) }, "no proof arrives")
		require.NoError(t, l.Err())
	}
	require.Equal(t, session, conn.SessionID())
	for _, each := range []*candidate{c, next, last} {
		each.quiet(t, 0)
	}
	require.Len(t, children(t, admin, node), 3)
	require.Equal(t, 3, creates(t, admin, node))
}

// Trap 22: something waits for ever on a connection that was closed, or is
// suspended.
func TestTrap22_NothingHangs(t *testing.T) {
	t.Parallel()
	for _, state := range []struct {
		name string
		// prepare brings a candidate into the state.
		prepare func(t *testing.T, admin, conn *client, node string) *candidate
	}{
		{"leading", func(t *testing.T, _, conn *client, node string) *candidate {
			c, _ := lead(t, conn, node)
			return c
		}},
		{"following", func(t *testing.T, admin, conn *client, node string) *candidate {
			leader, _ := lead(t, admin, node)
			return follow(t, conn, node, leader)
		}},
		{"suspended", func(t *testing.T, _, conn *client, node string) *candidate {
			c, l := lead(t, conn, node)
			conn.link.freeze()
			await(t, l.Done(), "the end of the lease")
			require.Equal(t, leaderelection.Suspended, c.next(t).Role)
			return c
		}},
		{"disconnected", func(t *testing.T, admin, conn *client, node string) *candidate {
			leader, _ := lead(t, admin, node)
			c := follow(t, conn, node, leader)
			conn.link.cut()
			eventually(t, func() bool { return conn.State() != zk.StateHasSession }, "cut")
			return c
		}},
		{"creating", func(t *testing.T, _, conn *client, node string) *candidate {
			rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.HoldReply})
			c := enlist(t, conn, node, leaderelection.WithRejoin())
			await(t, rule.Done(), "the fault")
			return c
		}},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			t.Run("closed", func(t *testing.T) {
				admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
				c := state.prepare(t, admin, conn, newNode(t, admin))
				closed := inBackground(t, func() error { conn.Close(); return nil })
				begin := time.Now()
				c.ends(t, leaderelection.ErrConnClosed)
				require.Less(t, time.Since(begin), shortTimeout, "told late")
				_ = c.Resign() // returns at once, whatever it says
				require.Less(t, time.Since(begin), shortTimeout)
				_, err := c.Multi()
				require.ErrorIs(t, err, leaderelection.ErrNotLeader)
				await(t, closed, "Close")
			})
			t.Run("resigned", func(t *testing.T) {
				admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
				c := state.prepare(t, admin, conn, newNode(t, admin))
				begin := time.Now()
				_ = c.Resign() // it may or may not be confirmed
				require.Less(t, time.Since(begin), confirmed)
				c.closesSilently(t)
				require.NoError(t, c.result(t))
			})
		})
	}
}

// Trap 22, with several candidates on the connection: their znodes all go with
// the session, in any order, and the server still tells them of each other.
func TestTrap22_CloseWithSeveral(t *testing.T) {
	t.Parallel()
	admin := connect(t)
	for range 8 {
		conn := connectShortly(t)
		node := newNode(t, admin)
		h := newHistory()
		var all []*candidate
		for range 4 {
			c := enlist(t, conn, node)
			if s := c.next(t); s.Role == leaderelection.Leader {
				h.granted("first", c.ID(), s.Leadership)
			}
			all = append(all, c)
		}
		last := follow(t, admin, node, all[len(all)-1])
		eventually(t, func() bool { return conn.link[0].Count(zkproxy.OpMulti) > 2 }, "the second in line is prepared")
		conn.Close()
		h.granted("last", last.ID(), last.leads(t))
		for _, c := range all {
			c.ends(t, leaderelection.ErrConnClosed)
		}
	}
}

// Trap 27: watches are lost with the session, or what they watch for happens
// while the connection is down.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Parallel()
	t.Run("same session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		first := contender(t, admin, node)
		second := contender(t, admin, node)
		c := enlist(t, conn, node)
		require.Equal(t, second, c.next(t).NowFollowing)
		conn.link.cut()
		remove(t, admin, second)
		conn.link.restore()
		require.Equal(t, first, c.next(t).NowFollowing)
		conn.link.cut()
		remove(t, admin, first)
		conn.link.restore()
		c.leads(t)
	})
	t.Run("new session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWays(t, shortTimeout)
		node := newNode(t, admin)
		first := contender(t, admin, node)
		c := enlist(t, conn, node, leaderelection.WithRejoin())
		require.Equal(t, first, c.next(t).NowFollowing)
		id := c.ID()
		expire(t, conn)
		conn.link.restore()
		for s := c.next(t); s.NowFollowing != first || s.CandidateID == id; s = c.next(t) {
			require.NoError(t, s.Err)
			require.Equal(t, leaderelection.Follower, s.Role)
		}
		remove(t, admin, first)
		c.leads(t)
		onlyChild(t, admin, node, c, conn)
	})
	t.Run("own znode", func(t *testing.T) {
		t.Parallel()
		for _, leading := range []bool{true, false} {
			t.Run(fmt.Sprintf("leading %v", leading), func(t *testing.T) {
				t.Parallel()
				admin, conn := connect(t), connectWays(t, shortTimeout)
				node := newNode(t, admin)
				if !leading {
					contender(t, admin, node)
				}
				c := enlist(t, conn, node)
				require.Equal(t, leading, c.next(t).Role == leaderelection.Leader)
				conn.link.cut()
				remove(t, admin, c.ID())
				conn.link.restore()
				c.ends(t, leaderelection.ErrCandidateDeleted)
			})
		}
	})
}
