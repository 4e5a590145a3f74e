package traptest

import (
	"path"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-45, CURATOR-79: a create is applied and its answer lost; an orphan that
// nobody owns blocks the line.
func TestTrap01_CreateAnswerLost(t *testing.T) {
	forEachLoss(t, connectionLosses, 1, createAnswerLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	forEachLoss(t, movedSessions, 1, createAnswerLost)
}

func createAnswerLost(h *harness, l loss) {
	leader, conn := h.join(h.connect()), h.connect()
	session := conn.SessionID()
	lost := l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1})
	c := h.join(conn)
	h.advance(timeout)
	h.requireMet(lost)
	c.requireFollows(leader)
	h.requireIDs(leader.ID(), c.ID())
	if l.applied {
		require.Len(h, h.createdIDs(), 2, "what was created is used")
	}
	leader.resign()
	require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
	c.requireOnlyCandidate()
	require.Equal(h, session, conn.SessionID(), "it had to be solved within the session")
	c.resign()
	h.requireIDs()
}

// CURATOR-498: the search for what the create has left finds a znode of another
// session, as that of a dying one may still be seen, and takes it for the own.
func TestTrap02_ForeignOwner(t *testing.T) { withServers(t, 1, foreignOwner) }

func foreignOwner(h *harness) {
	lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		h.srv.Refuse(true)
		return zktest.Cut(q)
	})
	c := h.join(h.connect())
	h.requireMet(lost)
	mine := h.createdIDs()
	require.Len(h, mine, 1)
	guid := mine[0][:len(mine[0])-10]
	h.remove(mine[0])
	other, err := h.operator.Create(guid, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(h, err)
	h.reconnect()
	require.NotEqual(h, other, c.ID())
	require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
	c.requireOnlyCandidate()
}

// CURATOR-498, with the session's end itself between create and search.
func TestTrap02_SessionEndsBeforeTheSearch(t *testing.T) {
	withServers(t, 1, sessionEndsBeforeTheSearch)
}

func sessionEndsBeforeTheSearch(h *harness) {
	conn := h.connect()
	old := conn.SessionID()
	lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		h.srv.Refuse(true)
		return zktest.Cut(q)
	})
	c := h.join(conn)
	h.requireMet(lost)
	require.NoError(h, h.srv.ExpireSession(old))
	h.reconnect()
	h.advance(timeout)
	require.NotEqual(h, old, conn.SessionID())
	c.requireLeads()
	c.requireOnlyCandidate()
	require.Len(h, h.createdIDs(), 2)
}

// ZOOKEEPER-1675: the search is answered by a server that lags behind, and does
// not show what the create has made.
func TestTrap03_SearchAtALaggingServer(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		lagging, conn := h.ensemble.Server(1), h.connect()
		lagging.Lag()
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		require.Equal(h, lagging.Name(), conn.Server())
		require.NotContains(h, lagging.Tree(), "latch")
		h.advance(timeout / 4)
		require.Empty(h, c.received(), "nobody can know yet")
		lagging.Heal()
		h.advance(0)
		c.requireLeads()
		c.requireOnlyCandidate()
		require.Len(h, h.createdIDs(), 1)
	})
}

// What the search has not shown appears later, ahead of the own znode, and the
// candidate would wait for itself.
func TestTrap03_OwnZnodeShowsUpLate(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		h.remove(h.createContender()) // leaves a gap in the numbers
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, ahead, c.newest().NowFollowing)

		first := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := func(number string) {
			_, err := conn.Create(first+number, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
		}
		late("0000000001")
		h.requireIDs(ahead, first+"0000000001", c.ID())
		_, err := h.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(h, err)
		h.advance(0)
		h.requireIDs(ahead, c.ID())
		require.Len(h, c.received(), 1)
		require.Equal(h, ahead, c.newest().NowFollowing)

		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		// One that shows up still later goes when the candidate does.
		late("0000000000")
		c.resign()
		h.requireIDs()
	})
}

// kazoo's Lock has one GUID for all its creates: after a reset the same name can
// come back.
func TestTrap04_NewGUIDForEachCreate(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		first := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		second := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		c := h.join(h.connect(), leaderelection.WithRejoin())
		h.advance(timeout)
		h.requireMet(first, second)
		for range 2 {
			c.requireLeads()
			h.expire(c.conn)
			h.advance(timeout)
		}
		c.requireLeads()
		names := map[string]bool{}
		for _, e := range h.srv.Log() {
			if e.Op == zktest.OpCreate && strings.HasPrefix(e.Path, node+"/") {
				require.False(h, names[e.Path], "%s was used before", e.Path)
				names[e.Path] = true
			}
		}
		require.Len(h, names, 5, "two that were cut, and one for each session")
		c.requireOnlyCandidate()
	})
}

// CURATOR-724, CURATOR-180, kazoo #563: the election node goes between the look
// at it and the create. It must not be created anew behind the user's back.
func TestTrap36_NodeGoesBeforeTheCreate(t *testing.T) {
	// contain makes the election node a container that has lost its last child.
	contain := func(h *harness) {
		h.remove(node)
		_, err := h.operator.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		h.remove(h.createContender())
	}
	sweep := func(h *harness, k int) *zktest.Hook {
		return h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: k}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Sweep()
			return zktest.Pass(q)
		})
	}
	ends := func(h *harness, c *candidate) {
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		require.NoError(h, c.Resign())
		found, _, err := h.operator.Exists(node)
		require.NoError(h, err)
		require.False(h, found)
	}
	t.Run("at first", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			contain(h)
			swept := sweep(h, 1)
			c := h.join(h.connect(), leaderelection.WithCreateNode())
			h.requireMet(swept)
			ends(h, c)
			c.requireNeverLed()
		})
	})
	t.Run("after the session", func(t *testing.T) {
		withServers(t, 3, func(h *harness) {
			contain(h)
			swept := sweep(h, 2)
			c := h.join(h.connect(), leaderelection.WithRejoin())
			c.requireLeads()
			require.Zero(h, h.srv.Sweep(), "a candidate holds it")
			h.expire(c.conn)
			h.advance(timeout)
			h.requireMet(swept)
			ends(h, c)
		})
	})
	t.Run("while the connection is down", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			contain(h)
			conn := h.connect()
			h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				h.srv.Refuse(true)
				return zktest.Cut(q)
			})
			c := h.join(conn)
			require.Equal(h, 1, h.srv.Sweep())
			h.reconnect()
			ends(h, c)
		})
	})
	t.Run("and comes back as another one", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			contain(h)
			anew := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				h.srv.Sweep()
				_, _ = h.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
				return zktest.Pass(q)
			})
			c := h.join(h.connect())
			h.requireMet(anew)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
			c.requireNeverLed()
			h.requireIDs()
			h.join(h.connect()).requireLeads()
		})
	})
	t.Run("with its parents", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			conn := h.connect()
			_, err := leaderelection.NewElection(conn, "/a/b/c", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			require.Zero(h, h.stat(path.Dir("/a/b/c")).EphemeralOwner)
		})
	})
}

// CURATOR-18, CURATOR-3: the end comes while the create is under way, and leaves
// an orphan.
func TestTrap40_EndDuringTheCreate(t *testing.T) {
	t.Run("the answer is late", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			hold, release := h.hold()
			h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, hold)
			endsDuringTheCreate(h, release)
		})
	})
	forEachLoss(t, connectionLosses[2:], 1, func(h *harness, l loss) {
		l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1})
		endsDuringTheCreate(h, func() {})
	})
}

func endsDuringTheCreate(h *harness, answer func()) {
	conn := h.connect()
	session := conn.SessionID()
	c := h.join(conn)
	orphan := h.candidateIDs()
	require.Len(h, orphan, 1)
	h.requireDuration(confirmLimit, func() {
		require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed, "nobody can know yet")
	})
	h.advance(0)
	require.NoError(h, c.requireOver())
	require.Empty(h, c.received())
	h.requireIDs(orphan...)
	answer()
	h.advance(timeout)
	require.NoError(h, c.Resign(), "now it is confirmed")
	h.requireIDs()
	require.Equal(h, session, conn.SessionID(), "the session's end is no solution")
}
