package traptest

import (
	"fmt"
	"math"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// ZOOKEEPER-2944, ZOOKEEPER-4706, kazoo #730: the counter comes to its end. A
// server since 3.6 then gives 2147483647 to everybody, so that none of them
// stands behind another one.
func TestTrap32_CounterComesToItsEnd(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(node, math.MaxInt32-3))
		var line, late []*candidate
		for range 3 {
			line = append(line, h.join(h.connect()))
		}
		for range 3 {
			late = append(late, h.joinAsync(h.connect(), leaderelection.WithRejoin()))
		}
		h.advance(0)
		for _, c := range late {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrNodeExhausted)
			require.NoError(h, c.Resign(), "nothing is left of it")
		}
		require.Len(h, h.childNames(), 3)

		// Those who stand in line succeed each other as ever.
		first := line[0].requireLeads()
		line[1].requireFollows(line[0])
		line[2].requireFollows(line[1])
		require.NoError(h, line[0].Resign())
		h.advance(0)
		second := line[1].requireLeads()
		require.Greater(h, second.Token(), first.Token())
		require.NoError(h, line[1].Resign())
		h.advance(0)
		require.Greater(h, line[2].requireLeads().Token(), second.Token())

		// The way out.
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(shortTime)
		require.ErrorIs(h, line[2].requireOver(), leaderelection.ErrElectionOver)
		h.create(node)
		h.join(h.connect()).requireLeads()
	})
}

// kazoo #730, go-zookeeper PR 65: servers up to 3.5 go on with -2147483648, and
// an order by text puts that first.
func TestTrap32_NegativeNumbersStandBehind(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		require.NoError(h, h.srv.SetSequence(node, math.MaxInt32-2))
		ahead := h.createContender()
		c := h.join(h.connect())
		want := []string{ahead, c.ID(), h.createContender()}
		for _, n := range []int32{math.MinInt32, math.MinInt32 + 1, -999_999_999, -9} {
			require.NoError(h, h.srv.SetSequence(node, n))
			want = append(want, h.createContender())
		}
		all, err := leaderelection.Candidates(h.operator, node)
		require.NoError(h, err)
		var got []string
		for _, info := range all {
			got = append(got, info.ID)
		}
		require.Equal(h, want, got)
		_, err = h.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(h, err)
		h.advance(0)
		require.Equal(h, ahead, c.newest().NowFollowing)
		h.remove(ahead)
		h.advance(timeout)
		c.requireLeads()
		require.NoError(h, h.srv.SetSequence(node, math.MinInt32+7))
		require.ErrorIs(h, h.join(h.connect()).requireOver(), leaderelection.ErrNodeExhausted)
	})
}

// CURATOR-43, go-zookeeper's parseSeq: children of other kinds break the sorting,
// or are taken for predecessors.
func TestTrap34_ForeignChildren(t *testing.T) {
	const uuid = "_c_00000000-0000-4000-8000-000000000000"
	foreign := []string{
		"a", "_c_x", "_c_", "latch-", "lock-", "DONE-", "0000000000", "-0000000000", "x-0000000000",
		uuid + "-latch-", uuid + "-latch-00000000x0", uuid + "-latch-9999999999",
		uuid + "-other-0000000000", "__lock__", "le_", "ünïcode-0000000000",
	}
	withServers(t, 1, func(h *harness) {
		for _, name := range foreign {
			h.create(node + "/" + name)
		}
		c, next := h.join(h.connect()), h.join(h.connect())
		c.requireLeads()
		next.requireFollows(c)
		all, err := leaderelection.Candidates(h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, 2)
		require.Equal(h, c.ID(), all[0].ID)
		require.ErrorIs(h, c.EndElection(), leaderelection.ErrForeignChildren)
		h.advance(shortTime)
		c.requireLeads()
		c.resign()
		next.requireLeads()
		require.Len(h, h.candidateIDs(), len(foreign)+1)
	})
}

// A container that has gone with its last child and comes back counts from 0: as
// a fencing token the number would go back.
func TestTrap35_NumbersBeginAnew(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.remove(node)
		number := func(c *candidate) string { return c.ID()[len(c.ID())-10:] }
		var last *leaderelection.Leadership
		for round := range 3 {
			_, err := h.operator.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
			for range 3 - round {
				h.remove(h.createContender())
			}
			c := h.join(h.connect())
			l := c.requireLeads()
			require.Equal(h, fmt.Sprintf("%010d", 3-round), number(c))
			if last != nil {
				require.Greater(h, l.Token(), last.Token())
			}
			last = l
			c.resign()
			require.Equal(h, 1, h.srv.Sweep())
		}
	})
}

// CURATOR-620, CURATOR-652, CURATOR-653: two resets at once make two znodes, or
// two leaders, or leave one behind.
func TestTrap38_EverythingAtOnce(t *testing.T) {
	for round := range 10 {
		withServers(t, 3, func(h *harness) {
			conn := h.connect()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())
			require.NoError(h, err)
			drop := func() { h.eachServer(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) }) }
			// It is started many times over while its connection breaks.
			var started []<-chan error
			for range 10 {
				started = append(started, async(e.ElectLeader))
			}
			drop()
			h.advance(timeout)
			require.Equal(h, leaderelection.Leader, e.Current().Role)
			h.requireIDs(e.ID())

			var ended []<-chan error
			for i := range 10 {
				if i == round {
					drop()
				}
				ended = append(ended, async(e.Resign))
			}
			h.advance(timeout)
			for _, c := range ended {
				require.NoError(h, receive(h, c))
			}
			once := 0
			for _, c := range started {
				if err := receive(h, c); err == nil {
					once++
				} else {
					require.ErrorIs(h, err, leaderelection.ErrAlreadyStarted)
				}
			}
			require.Equal(h, 1, once)
			h.requireIDs()
			require.Equal(h, zk.StateHasSession, conn.State())
		})
	}
}

// CURATOR-504, CURATOR-644, FLINK-28078: a missing predecessor makes a candidate
// create itself anew, which makes the next one do so, and so on for ever.
func TestTrap39_NoCreateStorm(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		const count = 30
		conns := []*zk.Conn{h.connect(), h.connect()}
		var all []*candidate
		for i := range count {
			all = append(all, h.join(conns[i%4/2], leaderelection.WithRejoin()))
		}
		// Every second one goes, most while the connections are down.
		for i := 0; i < count; i += 2 {
			if i == count/3 {
				for _, conn := range conns {
					h.disconnect(conn)
				}
			}
			h.remove(all[i].ID())
		}
		h.advance(shortTime)
		h.reconnect()
		var left []string
		for i, c := range all {
			switch {
			case i%2 == 0:
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
				continue
			case i == 1:
				c.requireLeads()
			default:
				c.requireFollows(all[i-2])
			}
			left = append(left, c.ID())
		}
		h.requireIDs(left...)
		require.Len(h, h.createdIDs(), count, "nobody was created anew")
	})
}

// druid PR 17546: the next term begins while the last one has not ended.
func TestTrap42_TermsDoNotOverlap(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		terms := []*leaderelection.Leadership{c.requireLeads()}
		for range 2 { // proven again
			h.advance(timeout)
			h.eachServer(func(s *zktest.Server) { s.Blackhole(zktest.BothWays, c.conn.SessionID()) })
			h.advance(timeout)
			terms = append(terms, c.requireLeads())
			require.Equal(h, terms[0].Token(), c.requireLeads().Token())
		}
		h.expire(c.conn)
		h.advance(timeout)
		terms = append(terms, c.requireLeads())
		require.Greater(h, c.requireLeads().Token(), terms[0].Token())
		for _, l := range terms[:3] {
			require.Error(h, l.Err())
		}
		// Each was told once, and something else in between.
		var told []*leaderelection.Leadership
		for i, s := range c.received() {
			if s.Role == leaderelection.Leader {
				require.True(h, i == 0 || c.received()[i-1].Role != leaderelection.Leader)
				told = append(told, s.Leadership)
			}
		}
		require.Len(h, told, len(terms))
		for i := range terms {
			require.Same(h, terms[i], told[i])
		}
	})
}

// CURATOR-358, druid #3837: the leader's znode goes between a listing and the
// read of it.
func TestTrap43_LeaderVanishesWhileAskedFor(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		first, second := h.join(h.connect()), h.join(h.connect())
		first.requireLeads()
		second.requireFollows(first)
		gone := h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: first.ID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_ = h.srv.ExpireSession(first.conn.SessionID())
			return zktest.Pass(q)
		})
		info, ok, err := leaderelection.CurrentLeader(h.operator, node)
		require.NoError(h, err)
		h.requireMet(gone)
		require.True(h, ok)
		require.Equal(h, second.ID(), info.ID)
		h.advance(timeout) // the client dials again and learns of it
		require.ErrorIs(h, first.requireOver(), leaderelection.ErrSessionExpired)
		second.requireLeads()
	})
}

// The same where nobody is left, and for the whole list.
func TestTrap43_NobodyIsLeft(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		vanish := func() *zktest.Hook {
			leader := h.createContender()
			return h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: leader, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				_ = h.operator.Delete(leader, -1)
				return zktest.Pass(q)
			})
		}
		conn := h.connect()
		gone := vanish()
		info, found, err := leaderelection.CurrentLeader(conn, node)
		require.NoError(h, err)
		require.False(h, found)
		require.Zero(h, info)
		h.requireMet(gone)

		gone = vanish()
		second := h.createContender()
		all, err := leaderelection.Candidates(conn, node)
		require.NoError(h, err)
		require.Len(h, all, 1)
		require.Equal(h, second, all[0].ID)
		h.requireMet(gone)
	})
}

// kazoo #291, #134, #315: who may enter again is a matter of threads there. Here
// it is one of values: a second candidate is another one, on whatever connection
// and goroutine, and one candidate stands once.
func TestTrap54_CandidatesAreValues(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.join(conn)
		l := c.requireLeads()
		again := h.join(conn)
		again.requireFollows(c)
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		_, err := again.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		h.requireIDs(c.ID(), again.ID())
		require.NoError(h, l.Err())
		require.NoError(h, <-async(c.Resign), "on another goroutine")
		h.advance(shortTime) // it waits whether the session ends
		again.requireLeads()
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrCandidacyOver)
		again.resign()
		h.requireIDs()
	})
}
