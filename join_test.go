package leaderelection_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C7: a create that was applied and whose answer got lost left a znode of a
// living session at the head of the line, that nobody knew of.
func TestJoin_CreateLost(t *testing.T) {
	for name, lost := range map[string]struct{ requests, answers int }{
		"a request":               {requests: 1},
		"an answer":               {answers: 1},
		"two requests":            {requests: 2},
		"a request and an answer": {requests: 1, answers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, place := range []string{"as the first", "as the second"} {
				t.Run(place, func(t *testing.T) {
					withServers(t, 1, func(h *harness) {
						var leader *candidate
						if place == "as the second" {
							leader = h.join(h.connect())
						}
						conn := h.connect()
						session := conn.SessionID()
						match := zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}
						for n := range lost.requests {
							match.Nth = n + 1
							h.srv.Before(match, zktest.Cut)
						}
						match.Nth = 1 // of those that arrive
						for range lost.answers {
							h.srv.After(match, zktest.Cut)
						}

						c := h.joinAsync(conn)
						h.advance(3500 * time.Millisecond) // the client dials once a second
						require.Equal(h, session, conn.SessionID(), "the session's end is no solution")
						require.Len(h, h.requests(zktest.OpCreate, session), lost.requests+max(lost.answers, 1), "none that is not needed")
						if leader == nil {
							c.requireLeads()
							h.requireChildren(names(c)...)
						} else {
							c.requireFollows(leader)
							h.requireChildren(names(leader, c)...)
						}
						require.Len(h, c.received(), 1)

						behind := h.join(h.connect())
						behind.requireFollows(c)
						require.NoError(h, c.Resign())
						h.advance(0)
						if leader == nil {
							behind.requireLeads()
						} else {
							behind.requireFollows(leader)
						}
					})
				})
			}
		})
	}
}

// A znode whose create was applied and not answered is taken as the own one. A
// second one would stand behind it, and behind whoever came in between.
func TestJoin_CreateReplyLost(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn := h.connect()
		session := conn.SessionID()
		var created string
		var between *candidate
		other := h.connect()
		h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			created = q.Created
			return zktest.Cut(q)
		})
		// Before the candidate is back somebody else has joined.
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			between = h.joinAsync(other)
			time.Sleep(time.Millisecond)
			return zktest.Pass(q)
		})
		c := h.joinAsync(conn)
		h.advance(100 * time.Millisecond)
		require.Equal(h, created, c.ID())
		c.requireLeads()
		between.requireFollows(c)
		require.Len(h, h.requests(zktest.OpCreate, session), 1)
		require.Len(h, h.childNames(), 2)
	})
}

// A znode with the name of a create that was not answered is used only if it is
// of this session: one of another goes with that (CURATOR-498).
func TestJoin_ZnodeOfOtherSession(t *testing.T) {
	for name, keepOwn := range map[string]bool{"beside the own": true, "in its place": false} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 2, func(h *harness) {
				conn := h.connect()
				var impostor string
				h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					var err error
					if !keepOwn {
						assert.NoError(h, h.operator.Delete(q.Created, -1))
					}
					// Ahead of the own one, so that it is met first.
					assert.NoError(h, h.srv.SetSequence(node, 0))
					impostor, err = h.operator.Create(q.Path, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
					assert.NoError(h, err)
					return zktest.Cut(q)
				})
				require.NoError(h, h.srv.SetSequence(node, 7))
				c := h.joinAsync(conn)
				h.advance(100 * time.Millisecond)
				c.requireLeads()
				require.NotEqual(h, impostor, c.ID())
				h.requireChildren(names(c)...)
				_, stat, err := h.operator.Exists(c.ID())
				require.NoError(h, err)
				require.Equal(h, conn.SessionID(), stat.EphemeralOwner)
			})
		})
	}
}

// CURATOR-45, CURATOR-79: a create is applied and its answer lost; an orphan that
// nobody owns blocks the line.
func TestTrap01_CreateReplyLost(t *testing.T) {
	forEachLoss(t, connectionLosses, 1, testCreateReplyLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	forEachLoss(t, movedSessions, 1, testCreateReplyLost)
}

func testCreateReplyLost(h *harness, l loss) {
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
func TestTrap02_OtherOwner(t *testing.T) { withServers(t, 1, testOtherOwner) }

func testOtherOwner(h *harness) {
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
func TestTrap02_SessionExpiresBeforeSearch(t *testing.T) {
	withServers(t, 1, testSessionExpiresBeforeSearch)
}

func testSessionExpiresBeforeSearch(h *harness) {
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
func TestTrap03_SearchAtLaggingServer(t *testing.T) {
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
func TestTrap03_SecondZnodeAppearsLate(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		h.remove(h.createContender()) // leaves a packetGap in the numbers
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
