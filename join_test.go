package leaderelection_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestJoin_CreateLost fails if a candidate whose create, or its reply, is lost creates two znodes,
// or waits until its session has expired.
func TestJoin_CreateLost(t *testing.T) {
	for name, lost := range map[string]struct{ requests, replies int }{
		"a request":             {requests: 1},
		"a reply":               {replies: 1},
		"two requests":          {requests: 2},
		"a request and a reply": {requests: 1, replies: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, position := range []string{"first", "second"} {
				t.Run(position, func(t *testing.T) {
					withServers(t, 1, func(h *harness) {
						var leader *candidate
						if position == "second" {
							leader = h.join(h.connect())
						}
						conn := h.connect()
						session := conn.SessionID()
						match := zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}
						for n := range lost.requests {
							match.Nth = n + 1
							h.srv.Before(match, zktest.Cut)
						}
						match.Nth = 1 // of the requests that the server receives
						for range lost.replies {
							h.srv.After(match, zktest.Cut)
						}

						c := h.joinAsync(conn)
						h.advance(3500 * time.Millisecond) // the client dials once a second
						require.Equal(h, session, conn.SessionID(), "the session has expired")
						require.Len(h, h.requests(zktest.OpCreate, session), lost.requests+max(lost.replies, 1), "an unnecessary create")
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

// TestJoin_CreateReplyLost fails if the candidate does not use the znode whose create was applied
// without a reply. A second znode would be behind those of candidates that have joined in between.
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
		// Another candidate joins before this one reconnects.
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

// TestJoin_ZnodeOfOtherSession fails if a candidate uses a znode with the name of its unanswered
// create that belongs to another session (CURATOR-498). The znode is deleted when that session
// ends.
func TestJoin_ZnodeOfOtherSession(t *testing.T) {
	for name, keepOwn := range map[string]bool{"additional znode": true, "replaced znode": false} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 2, func(h *harness) {
				conn := h.connect()
				var other string
				h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					var err error
					if !keepOwn {
						assert.NoError(h, h.operator.Delete(q.Created, -1))
					}
					// The number is smaller than that of the candidate's znode, so that it is found first.
					assert.NoError(h, h.srv.SetSequence(node, 0))
					other, err = h.operator.Create(q.Path, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
					assert.NoError(h, err)
					return zktest.Cut(q)
				})
				require.NoError(h, h.srv.SetSequence(node, 7))
				c := h.joinAsync(conn)
				h.advance(100 * time.Millisecond)
				c.requireLeads()
				require.NotEqual(h, other, c.ID())
				h.requireChildren(names(c)...)
				_, stat, err := h.operator.Exists(c.ID())
				require.NoError(h, err)
				require.Equal(h, conn.SessionID(), stat.EphemeralOwner)
			})
		})
	}
}

// CURATOR-45, CURATOR-79: a create is applied and its reply is lost. No client knows the znode,
// which blocks the queue.
func TestTrap01_CreateReplyLost(t *testing.T) {
	forEachNamingAndLoss(t, lostreply.ConnectionLost, 1, testCreateReplyLost)
}

// ZOOKEEPER-2886: the outcome is also unknown if a server replies that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	forEachNamingAndLoss(t, lostreply.SessionMoved, 1, testCreateReplyLost)
}

func testCreateReplyLost(h *harness, l lostreply.Fault) {
	leader, conn := h.join(h.connect()), h.connect()
	session := conn.SessionID()
	lost := l.Set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1})
	c := h.join(conn)
	h.advance(timeout)
	h.requireMet(lost)
	c.requireFollows(leader)
	h.requireIDs(leader.ID(), c.ID())
	if l.Applied {
		require.Len(h, h.createdIDs(), 2, "the znode that was created is not used")
	}
	leader.resign()
	require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
	c.requireOnlyCandidate()
	require.Equal(h, session, conn.SessionID(), "the session has expired")
	c.resign()
	h.requireIDs()
}

// CURATOR-498: the search for the znode of an unanswered create finds a znode of another session,
// which may be about to expire, and uses it.
func TestTrap02_OtherOwner(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := h.join(h.connect())
		h.requireMet(lost)
		created := h.createdIDs()
		require.Len(h, created, 1)
		prefix := created[0][:len(created[0])-10]
		h.remove(created[0])
		other, err := h.operator.Create(prefix, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		h.reconnect()
		require.NotEqual(h, other, c.ID())
		require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
		c.requireOnlyCandidate()
	})
}

// CURATOR-498: the session expires between create and search.
func TestTrap02_SessionExpiresBeforeSearch(t *testing.T) {
	forEachNaming(t, 1, func(h *harness) {
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
	})
}

// ZOOKEEPER-1675: a server that lags behind answers the search and does not show the znode that
// was created.
func TestTrap03_SearchAtLaggingServer(t *testing.T) {
	forEachNaming(t, 3, func(h *harness) {
		lagging, conn := h.ensemble.Server(1), h.connect()
		lagging.Lag()
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		require.Equal(h, lagging.Name(), conn.Server())
		require.NotContains(h, lagging.Tree(), path.Base(h.createdIDs()[0]))
		h.advance(timeout / 4)
		require.Empty(h, c.received(), "the outcome is not known yet")
		lagging.Heal()
		h.advance(0)
		c.requireLeads()
		c.requireOnlyCandidate()
		require.Len(h, h.createdIDs(), 1)
	})
}

// ZOOKEEPER-3600: a znode that the search has not found appears later, with a smaller number than
// the candidate's second znode, so that the candidate would wait for itself.
func TestTrap03_SecondZnodeAppearsLate(t *testing.T) {
	forEachNaming(t, 1, func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		h.remove(h.createContender()) // its number is not used again
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, ahead, c.newest().NowFollowing)

		first := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := func(number string) {
			_, err := conn.Create(first+number, []byte("name-not-provided"), zk.FlagEphemeral, openACL)
			require.NoError(h, err)
		}
		late("0000000001")
		h.requireIDs(ahead, first+"0000000001", c.ID())
		_, err := h.operator.Set(ahead, []byte("makes the candidate list again"), -1)
		require.NoError(h, err)
		h.advance(0)
		h.requireIDs(ahead, c.ID())
		require.Len(h, c.received(), 1)
		require.Equal(h, ahead, c.newest().NowFollowing)

		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		// A znode that appears even later is deleted when the candidate resigns.
		late("0000000000")
		c.resign()
		h.requireIDs()
	})
}

// kazoo's Lock uses one GUID for all its creates, so that the same name can occur again.
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
		require.Len(h, names, 5, "two that were lost, and one for each session")
		c.requireOnlyCandidate()
	})
}

// A znode of another session with the same prefix belongs to another candidate and is not deleted.
func TestTrap02_OtherOwner_NamePrefix(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := h.join(h.connect())
		h.requireMet(lost)
		h.remove(h.createdIDs()[0])
		other, err := h.operator.Create(node+"/n_", []byte("name-not-provided"), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		h.requireIDs(other, c.ID())
	})
}

// A znode of the same session with other data does not belong to the candidate.
func TestTrap02_OtherData_NamePrefix(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("another purpose of the program"), zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		c.resign()
		h.requireIDs(other)
	})
}

// If several candidates use one connection and one create loses its reply, each candidate still
// uses the znode that it has created.
func TestTrap01_SeveralCandidates_NamePrefix(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		forEachLoss(t, lostreply.ConnectionLost, 1, func(h *harness, l lostreply.Fault) {
			h.options = []leaderelection.Option{leaderelection.WithNamePrefix("n_")}
			conn := h.connect()
			l.Set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: nth})
			var all []*candidate
			for range 4 {
				all = append(all, h.joinAsync(conn))
			}
			h.advance(timeout)
			h.advance(timeout)
			ids := map[string]bool{}
			leaders := 0
			for _, c := range all {
				ids[c.ID()] = true
				if c.newest().Role == leaderelection.Leader {
					leaders++
				}
			}
			require.Len(h, ids, 4)
			require.Len(h, h.candidateIDs(), 4)
			require.Equal(h, 1, leaders)
			for _, c := range all {
				require.NoError(h, c.Resign())
			}
			h.advance(0)
			h.requireIDs()
		})
	}
}
