package leaderelection_test

import (
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
