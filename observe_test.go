package leaderelection_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// observations collects the observations of one call of Observe.
type observations struct {
	mu     sync.Mutex
	seen   []leaderelection.Observation
	closed bool
}

func (h *harness) observeLeader(ctx context.Context, conn *zk.Conn) *observations {
	h.Helper()
	c, err := leaderelection.Observe(ctx, conn, node, leaderelection.WithSessionTimeout(timeout))
	require.NoError(h, err)
	v := &observations{}
	go func() {
		for o := range c {
			v.mu.Lock()
			v.seen = append(v.seen, o)
			v.mu.Unlock()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.closed = true
	}()
	h.advance(0)
	return v
}

// leaders returns the names of the observed leaders. "-" means that there was no leader.
func (v *observations) leaders() (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range v.seen {
		switch {
		case o.Err != nil:
			names = append(names, o.Err.Error())
		case o.Leader == nil:
			names = append(names, "-")
		default:
			names = append(names, o.Leader.Name)
		}
	}
	return names
}

func candidateInfo(c *candidate, name string, token int64) leaderelection.CandidateInfo {
	return leaderelection.CandidateInfo{ID: c.ID(), Name: name, Token: token}
}

// TestObserve_ReportsChangesOfLeader checks that an observation delivers each change of the leader and no
// change of other candidates, and watches only the leader's znode.
func TestObserve_ReportsChangesOfLeader(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		session := conn.SessionID()
		v := h.observeLeader(h.Context(), conn)
		require.Equal(h, []string{"-"}, v.leaders())
		one := h.joinNamed("one")
		require.Equal(h, []string{"-", "one"}, v.leaders(), "not observed immediately")
		two, three := h.joinNamed("two"), h.joinNamed("three")
		require.Equal(h, []zktest.Watch{{Session: session, Path: one.ID(), Kind: zktest.DataWatch}},
			watchesOf(h, session), "other znodes than that of the leader are watched")
		require.NoError(h, two.Resign()) // a follower resigns, which does not change the leader
		require.NoError(h, one.Resign())
		h.advance(0)
		require.Equal(h, []string{"-", "one", "three"}, v.leaders())
		newest := v.seen[2].Leader
		require.Equal(h, candidateInfo(three, "three", three.requireLeads().Token()), *newest)

		// The observation continues in the next session of the client.
		require.NoError(h, h.srv.ExpireSession(session))
		require.NoError(h, three.Resign())
		h.advance(timeout)
		require.Equal(h, []string{"-", "one", "three", "-"}, v.leaders())
		h.joinNamed("four")
		require.Equal(h, []string{"-", "one", "three", "-", "four"}, v.leaders())

		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(time.Second)
		v.mu.Lock()
		defer v.mu.Unlock()
		require.ErrorIs(h, v.seen[len(v.seen)-1].Err, leaderelection.ErrElectionOver)
		require.True(h, v.closed)
	})
}

// TestObserve_DoesNotRepeatModifiedObservation checks that Observe does not deliver an unchanged leader again
// after a reconnect if the receiver has modified the previous observation.
func TestObserve_DoesNotRepeatModifiedObservation(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.joinNamed("leader")
		conn := h.connect()
		observed, end := h.observe(conn)
		defer end()
		*(<-observed).Leader = leaderelection.CandidateInfo{}
		h.srv.ResetLog()
		h.srv.DropConnections(conn.SessionID())
		h.advance(timeout)
		require.NotZero(h, h.srv.Log().Count(zktest.OpGetData), "the leader was not read again")
		require.Empty(h, observed)
	})
}

// TestObserve_EndsWhenTombstoneIsCreated checks that an observation ends with ErrElectionOver as soon as the
// tombstone exists, and that Observe and Candidates then return ErrElectionOver.
func TestObserve_EndsWhenTombstoneIsCreated(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader := h.joinNamed("leader")
		v := h.observeLeader(h.Context(), h.connect())
		deleter := h.connect()
		hold, release := bubble.Hold(h)
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: deleter.SessionID(), Nth: 2}, hold)
		ended := make(chan error, 1)
		go func() { ended <- leaderelection.DeleteElection(deleter, node) }()
		h.advance(0)
		h.requireChildren(append(namesOf(leader), "DONE")...)
		require.Len(h, v.leaders(), 2)
		require.ErrorIs(h, v.seen[1].Err, leaderelection.ErrElectionOver)
		_, err := leaderelection.Observe(h.Context(), h.operator, node)
		require.ErrorIs(h, err, leaderelection.ErrElectionOver)
		_, err = leaderelection.Candidates(h.Context(), h.operator, node)
		require.ErrorIs(h, err, leaderelection.ErrElectionOver)
		release()
		require.NoError(h, <-ended)
	})
}

func watchesOf(h *harness, session int64) (found []zktest.Watch) {
	for _, watch := range h.srv.Watches() {
		if watch.Session == session {
			found = append(found, watch)
		}
	}
	return found
}

// TestObserve_EndsWithContextOrConnection checks that an observation ends when its context is done (without an
// error) or its connection is closed, and that a slow reader receives the newest observation.
func TestObserve_EndsWithContextOrConnection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.joinNamed("leader")
		ctx, cancel := context.WithCancel(h.Context())
		v := h.observeLeader(ctx, h.connect())
		late, err := leaderelection.Observe(ctx, h.connect(), node)
		require.NoError(h, err)
		for i := range 3 {
			all, err := leaderelection.Candidates(h.Context(), h.operator, node)
			require.NoError(h, err)
			h.joinNamed(fmt.Sprint(i))
			require.NoError(h, h.operator.Delete(all[0].ID, -1))
			h.advance(10 * time.Millisecond)
		}
		require.Equal(h, "2", (<-late).Leader.Name)
		require.Empty(h, late)
		cancel()
		h.advance(0)
		require.Equal(h, []string{"leader", "0", "1", "2"}, v.leaders())
		require.True(h, v.closed)

		closing := h.connect()
		v = h.observeLeader(h.Context(), closing)
		closing.Close()
		h.advance(timeout)
		v.mu.Lock()
		defer v.mu.Unlock()
		require.Len(h, v.seen, 2)
		require.ErrorIs(h, v.seen[1].Err, leaderelection.ErrConnClosed)
		require.True(h, v.closed)
	})
}

// TestObserve_FindsNextLeaderIfLeaderLeavesDuringRead checks that Observe finds the next leader if the leader's
// znode is deleted after the listing and before its data is read (CURATOR-358, druid #3837).
// Scenario 43 of docs/traps.md.
func TestObserve_FindsNextLeaderIfLeaderLeavesDuringRead(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		first, second := h.join(h.connect()), h.join(h.connect())
		first.requireLeads()
		second.requireFollows(first)
		gone := h.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: first.ID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_ = h.srv.ExpireSession(first.conn.SessionID())
			return zktest.Pass(q)
		})
		observed, end := h.observe(h.operator)
		require.Equal(h, second.ID(), (<-observed).Leader.ID)
		bubble.RequireRun(h, gone)
		end()
		h.advance(timeout) // the client reconnects and is notified
		require.ErrorIs(h, first.requireOver(), leaderelection.ErrSessionExpired)
		second.requireLeads()
	})
}

// observe starts an observation, and returns it with a function that ends it.
func (h *harness) observe(conn *zk.Conn) (<-chan leaderelection.Observation, func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	observed, err := leaderelection.Observe(ctx, conn, node)
	require.NoError(h, err)
	return observed, func() {
		cancel()
		for range observed {
		}
	}
}

// TestObserve_SetsOneWatch checks that the number of watches does not grow with the number of observations.
func TestObserve_SetsOneWatch(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		for _, leader := range []bool{false, true} {
			if leader {
				h.join(h.connect())
			}
			for range 1000 {
				observed, end := h.observe(conn)
				require.Equal(h, leader, (<-observed).Leader != nil)
				end()
			}
			require.Equal(h, 1, bubble.Watches(conn))
		}
	})
}

// TestObserve_ReportsChangeAfterLostWatch checks that Observe reports a change of the leader after the client
// library has lost the watch at a reconnect, before or during the observation.
func TestObserve_ReportsChangeAfterLostWatch(t *testing.T) {
	for _, before := range []bool{false, true} {
		withServers(t, 1, func(h *harness) {
			a, b := h.join(h.connect()), h.join(h.connect())
			conn := h.connect()
			observed, end := h.observe(conn)
			require.Equal(h, a.ID(), (<-observed).Leader.ID)
			if before {
				end()
			}
			h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrAPIError))
			h.srv.DropConnections(conn.SessionID())
			h.advance(3 * time.Second)
			if before {
				observed, end = h.observe(conn)
				require.Equal(h, a.ID(), (<-observed).Leader.ID)
			}
			require.NoError(h, a.Resign())
			require.Equal(h, b.ID(), (<-observed).Leader.ID)
			require.NoError(h, b.Resign())
			require.Nil(h, (<-observed).Leader)
			c := h.join(h.connect())
			require.Equal(h, c.ID(), (<-observed).Leader.ID)
			require.NoError(h, leaderelection.DeleteElection(h.operator, node))
			h.advance(0)
			require.ErrorIs(h, (<-observed).Err, leaderelection.ErrElectionOver)
			end()
		})
	}
}

// TestWithValue_ReachesObserversSeparatelyFromName checks that Candidates and Observe return the advertised
// value separately from the name, before and after a hand-over.
func TestWithValue_ReachesObserversSeparatelyFromName(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		a := h.join(h.connect(), leaderelection.WithName("ünïcode"), leaderelection.WithValue("10.0.0.1:80"))
		b := h.joinNamed("b")
		data, _, err := h.operator.Get(a.ID())
		require.NoError(h, err)
		require.Equal(h, "ünïcode\x0010.0.0.1:80", string(data))
		data, _, err = h.operator.Get(b.ID())
		require.NoError(h, err)
		require.Equal(h, "b", string(data), "the data of a candidate without a value is not its name")

		all, err := leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, 2)
		require.Equal(h, []string{"ünïcode", "10.0.0.1:80"}, []string{all[0].Name, all[0].Value})
		require.Equal(h, []string{"b", ""}, []string{all[1].Name, all[1].Value})
		observed, end := h.observe(h.operator)
		require.Equal(h, all[0], *(<-observed).Leader)
		require.NoError(h, a.Resign())
		require.Equal(h, all[1], *(<-observed).Leader)
		end()
	})
}

// TestCandidates_ReturnsOrderOfSuccession checks that Candidates returns the candidates in the order of
// succession, with their names and tokens.
func TestCandidates_ReturnsOrderOfSuccession(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		all, err := leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Empty(h, all)

		var line []*candidate
		for i := range 12 { // from 10 on, the order of the names as text differs from that of the numbers
			line = append(line, h.joinNamed(fmt.Sprint(i)))
		}
		require.NoError(h, line[4].Resign())
		line = append(line[:4], line[5:]...)
		all, err = leaderelection.Candidates(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Len(h, all, len(line))
		for i, c := range line {
			_, stat, err := h.operator.Get(c.ID())
			require.NoError(h, err)
			name := fmt.Sprint(i)
			if i >= 4 {
				name = fmt.Sprint(i + 1)
			}
			require.Equal(h, candidateInfo(c, name, stat.Czxid), all[i])
		}
		require.Equal(h, line[0].requireLeads().Token(), all[0].Token)

		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		_, err = leaderelection.Candidates(h.Context(), h.operator, node)
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
	})
}

// TestCandidates_OmitsCandidateThatLeavesDuringRead checks that Candidates omits a candidate that leaves after
// the listing and before its znode is read, and returns no error, even if no candidate remains (CURATOR-358).
// Scenario 43 of docs/traps.md.
func TestCandidates_OmitsCandidateThatLeavesDuringRead(t *testing.T) {
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
		all, err := leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Empty(h, all)
		bubble.RequireRun(h, gone)

		gone = vanish()
		second := h.createContender()
		all, err = leaderelection.Candidates(h.Context(), conn, node)
		require.NoError(h, err)
		require.Len(h, all, 1)
		require.Equal(h, second, all[0].ID)
		bubble.RequireRun(h, gone)
	})
}

// TestCandidates_ShowsZnodeWithoutSession checks that Candidates lets an operator find and delete a candidate's
// znode that the servers never delete because its session does not exist (ZOOKEEPER-4837).
// Scenario 20 of docs/traps.md.
func TestCandidates_ShowsZnodeWithoutSession(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		left := node + "/_c_00000000-0000-4000-8000-000000000000-latch-0000000000"
		h.create(left)
		c := h.join(h.connect())
		require.Equal(h, left, c.newestStatus().NowFollowing)
		h.advance(time.Minute)
		c.requireNeverLed()
		first := h.firstCandidate()
		require.Equal(h, leaderelection.CandidateInfo{ID: left, Token: h.stat(left).Czxid}, first)
		require.Zero(h, h.stat(first.ID).EphemeralOwner)
		h.remove(first.ID)
		h.advance(0)
		require.Greater(h, c.requireLeads().Token(), first.Token)
	})
}
