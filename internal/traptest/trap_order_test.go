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
	play(t, 1, func(w *world) {
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-3))
		var line, late []*candidate
		for range 3 {
			line = append(line, w.enlist(w.connect()))
		}
		for range 3 {
			late = append(late, w.start(w.connect(), leaderelection.WithRejoin()))
		}
		w.pass(0)
		for _, c := range late {
			require.ErrorIs(w, c.over(), leaderelection.ErrNodeExhausted)
			require.NoError(w, c.Resign(), "nothing is left of it")
		}
		require.Len(w, w.children(), 3)

		// Those who stand in line succeed each other as ever.
		first := line[0].leads()
		line[1].follows(line[0])
		line[2].follows(line[1])
		require.NoError(w, line[0].Resign())
		w.pass(0)
		second := line[1].leads()
		require.Greater(w, second.Token(), first.Token())
		require.NoError(w, line[1].Resign())
		w.pass(0)
		require.Greater(w, line[2].leads().Token(), second.Token())

		// The way out.
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(moment)
		require.ErrorIs(w, line[2].over(), leaderelection.ErrElectionOver)
		w.create(node)
		w.enlist(w.connect()).leads()
	})
}

// kazoo #730, go-zookeeper PR 65: servers up to 3.5 go on with -2147483648, and
// an order by text puts that first.
func TestTrap32_NegativeNumbersStandBehind(t *testing.T) {
	play(t, 1, func(w *world) {
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-2))
		ahead := w.stand(w.operator)
		c := w.enlist(w.connect())
		want := []string{ahead, c.ID(), w.stand(w.operator)}
		for _, n := range []int32{math.MinInt32, math.MinInt32 + 1, -999_999_999, -9} {
			require.NoError(w, w.srv.SetSequence(node, n))
			want = append(want, w.stand(w.operator))
		}
		all, err := leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		var got []string
		for _, info := range all {
			got = append(got, info.ID)
		}
		require.Equal(w, want, got)
		_, err = w.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(w, err)
		w.pass(0)
		require.Equal(w, ahead, c.last().NowFollowing)
		w.remove(ahead)
		w.pass(timeout)
		c.leads()
		require.NoError(w, w.srv.SetSequence(node, math.MinInt32+7))
		require.ErrorIs(w, w.enlist(w.connect()).over(), leaderelection.ErrNodeExhausted)
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
	play(t, 1, func(w *world) {
		for _, name := range foreign {
			w.create(node + "/" + name)
		}
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		c.leads()
		next.follows(c)
		all, err := leaderelection.Candidates(w.operator, node)
		require.NoError(w, err)
		require.Len(w, all, 2)
		require.Equal(w, c.ID(), all[0].ID)
		require.ErrorIs(w, c.EndElection(), leaderelection.ErrForeignChildren)
		w.pass(moment)
		c.leads()
		c.resign()
		next.leads()
		require.Len(w, w.ids(), len(foreign)+1)
	})
}

// A container that has gone with its last child and comes back counts from 0: as
// a fencing token the number would go back.
func TestTrap35_NumbersBeginAnew(t *testing.T) {
	play(t, 1, func(w *world) {
		w.remove(node)
		number := func(c *candidate) string { return c.ID()[len(c.ID())-10:] }
		var last *leaderelection.Leadership
		for round := range 3 {
			_, err := w.operator.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			for range 3 - round {
				w.remove(w.stand(w.operator))
			}
			c := w.enlist(w.connect())
			l := c.leads()
			require.Equal(w, fmt.Sprintf("%010d", 3-round), number(c))
			if last != nil {
				require.Greater(w, l.Token(), last.Token())
			}
			last = l
			c.resign()
			require.Equal(w, 1, w.srv.Sweep())
		}
	})
}

// CURATOR-620, CURATOR-652, CURATOR-653: two resets at once make two znodes, or
// two leaders, or leave one behind.
func TestTrap38_EverythingAtOnce(t *testing.T) {
	for round := range 10 {
		play(t, 3, func(w *world) {
			conn := w.connect()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())
			require.NoError(w, err)
			drop := func() { w.servers(func(s *zktest.Server) { s.DropConnections(conn.SessionID()) }) }
			// It is started many times over while its connection breaks.
			var started []<-chan error
			for range 10 {
				started = append(started, async(e.ElectLeader))
			}
			drop()
			w.pass(timeout)
			require.Equal(w, leaderelection.Leader, e.Current().Role)
			w.line(e.ID())

			var ended []<-chan error
			for i := range 10 {
				if i == round {
					drop()
				}
				ended = append(ended, async(e.Resign))
			}
			w.pass(timeout)
			for _, c := range ended {
				require.NoError(w, receive(w, c))
			}
			once := 0
			for _, c := range started {
				if err := receive(w, c); err == nil {
					once++
				} else {
					require.ErrorIs(w, err, leaderelection.ErrAlreadyStarted)
				}
			}
			require.Equal(w, 1, once)
			w.line()
			require.Equal(w, zk.StateHasSession, conn.State())
		})
	}
}

// CURATOR-504, CURATOR-644, FLINK-28078: a missing predecessor makes a candidate
// create itself anew, which makes the next one do so, and so on for ever.
func TestTrap39_NoCreateStorm(t *testing.T) {
	play(t, 3, func(w *world) {
		const count = 30
		conns := []*zk.Conn{w.connect(), w.connect()}
		var all []*candidate
		for i := range count {
			all = append(all, w.enlist(conns[i%4/2], leaderelection.WithRejoin()))
		}
		// Every second one goes, most while the connections are down.
		for i := 0; i < count; i += 2 {
			if i == count/3 {
				for _, conn := range conns {
					w.cut(conn)
				}
			}
			w.remove(all[i].ID())
		}
		w.pass(moment)
		w.restore()
		var left []string
		for i, c := range all {
			switch {
			case i%2 == 0:
				require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
				continue
			case i == 1:
				c.leads()
			default:
				c.follows(all[i-2])
			}
			left = append(left, c.ID())
		}
		w.line(left...)
		require.Len(w, w.created(), count, "nobody was created anew")
	})
}

// druid PR 17546: the next term begins while the last one has not ended.
func TestTrap42_TermsDoNotOverlap(t *testing.T) {
	play(t, 3, func(w *world) {
		c := w.enlist(w.connect(), leaderelection.WithRejoin())
		terms := []*leaderelection.Leadership{c.leads()}
		for range 2 { // proven again
			w.pass(timeout)
			w.servers(func(s *zktest.Server) { s.Blackhole(zktest.BothWays, c.conn.SessionID()) })
			w.pass(timeout)
			terms = append(terms, c.leads())
			require.Equal(w, terms[0].Token(), c.leads().Token())
		}
		w.expire(c.conn)
		w.pass(timeout)
		terms = append(terms, c.leads())
		require.Greater(w, c.leads().Token(), terms[0].Token())
		for _, l := range terms[:3] {
			require.Error(w, l.Err())
		}
		// Each was told once, and something else in between.
		var told []*leaderelection.Leadership
		for i, s := range c.all() {
			if s.Role == leaderelection.Leader {
				require.True(w, i == 0 || c.all()[i-1].Role != leaderelection.Leader)
				told = append(told, s.Leadership)
			}
		}
		require.Len(w, told, len(terms))
		for i := range terms {
			require.Same(w, terms[i], told[i])
		}
	})
}

// CURATOR-358, druid #3837: the leader's znode goes between a listing and the
// read of it.
func TestTrap43_LeaderVanishesWhileAskedFor(t *testing.T) {
	play(t, 1, func(w *world) {
		first, second := w.enlist(w.connect()), w.enlist(w.connect())
		first.leads()
		second.follows(first)
		gone := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: first.ID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_ = w.srv.ExpireSession(first.conn.SessionID())
			return zktest.Pass(q)
		})
		info, ok, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		w.ran(gone)
		require.True(w, ok)
		require.Equal(w, second.ID(), info.ID)
		w.pass(timeout) // the client dials again and learns of it
		require.ErrorIs(w, first.over(), leaderelection.ErrSessionExpired)
		second.leads()
	})
}

// The same where nobody is left, and for the whole list.
func TestTrap43_NobodyIsLeft(t *testing.T) {
	play(t, 1, func(w *world) {
		vanish := func() *zktest.Hook {
			leader := w.stand(w.operator)
			return w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: leader, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				_ = w.operator.Delete(leader, -1)
				return zktest.Pass(q)
			})
		}
		conn := w.connect()
		gone := vanish()
		info, found, err := leaderelection.CurrentLeader(conn, node)
		require.NoError(w, err)
		require.False(w, found)
		require.Zero(w, info)
		w.ran(gone)

		gone = vanish()
		second := w.stand(w.operator)
		all, err := leaderelection.Candidates(conn, node)
		require.NoError(w, err)
		require.Len(w, all, 1)
		require.Equal(w, second, all[0].ID)
		w.ran(gone)
	})
}

// kazoo #291, #134, #315: who may enter again is a matter of threads there. Here
// it is one of values: a second candidate is another one, on whatever connection
// and goroutine, and one candidate stands once.
func TestTrap54_CandidatesAreValues(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		c := w.enlist(conn)
		l := c.leads()
		again := w.enlist(conn)
		again.follows(c)
		require.ErrorIs(w, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		_, err := again.Multi()
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		w.line(c.ID(), again.ID())
		require.NoError(w, l.Err())
		require.NoError(w, <-async(c.Resign), "on another goroutine")
		w.pass(moment) // it waits whether the session ends
		again.leads()
		require.ErrorIs(w, c.ElectLeader(), leaderelection.ErrCandidacyOver)
		again.resign()
		w.line()
	})
}
