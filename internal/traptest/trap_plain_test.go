package traptest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The traps of creates, with names that have no GUID.

// plain gives all candidates names without a GUID.
func plain(f func(h *harness)) func(h *harness) {
	return func(h *harness) {
		h.options = append(h.options, leaderelection.WithNaming(leaderelection.Prefix("n_")))
		f(h)
	}
}

func plainLoss(f func(h *harness, l loss)) func(h *harness, l loss) {
	return func(h *harness, l loss) { plain(func(h *harness) { f(h, l) })(h) }
}

func TestTrap01_CreateAnswerLost_PlainNames(t *testing.T) {
	forEachLoss(t, connectionLosses, 1, plainLoss(createAnswerLost))
}

func TestTrap10_SessionMovedDuringCreate_PlainNames(t *testing.T) {
	forEachLoss(t, movedSessions, 1, plainLoss(createAnswerLost))
}

// A znode of another session with the same prefix is another candidate's, and stays.
func TestTrap02_ForeignOwner_PlainNames(t *testing.T) {
	withServers(t, 1, plain(func(h *harness) {
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := h.join(h.connect())
		h.requireMet(lost)
		h.remove(h.createdIDs()[0])
		other, err := h.operator.Create(node+"/n_", []byte("name-not-provided"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		h.requireIDs(other, c.ID())
	}))
}

// A znode of the same session with other data is not the candidate's.
func TestTrap02_ForeignData_PlainNames(t *testing.T) {
	withServers(t, 1, plain(func(h *harness) {
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("of this program, for something else"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		c.resign()
		h.requireIDs(other)
	}))
}

func TestTrap02_SessionEndsBeforeTheSearch_PlainNames(t *testing.T) {
	withServers(t, 1, plain(sessionEndsBeforeTheSearch))
}

func TestTrap40_EndDuringTheCreate_PlainNames(t *testing.T) {
	forEachLoss(t, connectionLosses[2:], 1, plainLoss(func(h *harness, l loss) {
		l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1})
		endsDuringTheCreate(h, func() {})
	}))
}

// The search is answered by a server that lags behind.
func TestTrap03_SearchAtALaggingServer_PlainNames(t *testing.T) {
	withServers(t, 3, plain(func(h *harness) {
		lagging, conn := h.ensemble.Server(1), h.connect()
		lagging.Lag()
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.advance(timeout / 4)
		require.Empty(h, c.received(), "nobody can know yet")
		lagging.Heal()
		h.advance(0)
		c.requireLeads()
		c.requireOnlyCandidate()
		require.Len(h, h.createdIDs(), 1)
	}))
}

// What the search has not shown appears later, ahead of the znode in use.
func TestTrap03_OwnZnodeShowsUpLate_PlainNames(t *testing.T) {
	withServers(t, 1, plain(func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		h.remove(h.createContender()) // leaves a gap in the numbers
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, ahead, c.newest().NowFollowing)

		late := func(number string) {
			_, err := conn.Create(node+"/n_"+number, []byte("name-not-provided"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
		}
		late("0000000001")
		_, err := h.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(h, err)
		h.advance(0)
		h.requireIDs(ahead, c.ID())
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		// One that shows up still later goes when the candidate does.
		late("0000000000")
		c.resign()
		h.requireIDs()
	}))
}

// Of several candidates on one connection none takes another's znode for its own,
// whosever create has lost its reply.
func TestTrap01_CandidatesOfOneConnection_PlainNames(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		forEachLoss(t, connectionLosses, 1, plainLoss(func(h *harness, l loss) {
			conn := h.connect()
			l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: nth})
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
		}))
	}
}

// A persistent child is not a candidate, whatever its name. An ephemeral one is, if its
// name ends in ten digits.
func TestPersistentChildrenAreNoCandidates(t *testing.T) {
	for _, naming := range []leaderelection.Naming{leaderelection.CuratorLatch, leaderelection.Prefix("n_"), leaderelection.Prefix("")} {
		withServers(t, 1, func(h *harness) {
			lasting := []string{"n_0000000000", "0000000001", "config-0000000002"}
			for _, name := range lasting {
				h.create(node + "/" + name)
			}
			require.NoError(h, h.srv.SetSequence(node, 10))
			ahead, err := h.operator.Create(node+"/worker-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
			var log strings.Builder
			c := h.join(h.connect(), leaderelection.WithNaming(naming), leaderelection.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			next := h.join(h.connect(), leaderelection.WithNaming(naming))
			require.Equal(h, ahead, c.newest().NowFollowing)
			next.requireFollows(c)
			first, found, err := leaderelection.CurrentLeader(h.operator, node)
			require.NoError(h, err)
			require.True(h, found)
			require.Equal(h, ahead, first.ID)
			all, err := leaderelection.Candidates(h.operator, node)
			require.NoError(h, err)
			require.Len(h, all, 3)

			h.remove(ahead)
			h.advance(0)
			c.requireLeads()
			for _, name := range lasting {
				require.Contains(h, log.String(), "level=WARN msg=\"ignoring a child that is named like a candidate but is not ephemeral\" ")
				require.Contains(h, log.String(), "path="+node+"/"+name)
			}
			first, found, err = leaderelection.CurrentLeader(h.operator, node)
			require.NoError(h, err)
			require.True(h, found)
			require.Equal(h, c.ID(), first.ID)
			require.ErrorIs(h, leaderelection.DeleteElection(h.operator, node), leaderelection.ErrForeignChildren)
			c.requireLeads()
			c.resign()
			next.requireLeads()
		})
	}
}

// With persistent children alone there is no leader to observe.
func TestPersistentChildrenAreNotObserved(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.create(node + "/n_0000000000")
		_, found, err := leaderelection.CurrentLeader(h.operator, node)
		require.NoError(h, err)
		require.False(h, found)
		observed, err := leaderelection.Observe(h.Context(), h.operator, node)
		require.NoError(h, err)
		require.Nil(h, (<-observed).Leader)
		c := h.join(h.connect())
		require.Equal(h, c.ID(), (<-observed).Leader.ID)
	})
}

// The order of two candidates with the same number is unknown.
func TestAmbiguousCandidates(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		twin := node + "/n_0000000000"
		_, err := h.operator.Create(twin, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		require.NoError(h, h.srv.SetSequence(node, 0))
		conn := h.connect()
		c := h.join(conn)
		err = c.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrAmbiguous)
		require.ErrorContains(h, err, c.ID())
		require.ErrorContains(h, err, twin)
		h.requireIDs(twin)

		// It is not ambiguous if one of them is persistent.
		h.remove(twin)
		h.create(twin)
		require.NoError(h, h.srv.SetSequence(node, 0))
		again := h.join(conn)
		again.requireLeads()
	})
}

// A deletion deletes hand-written candidates with the election.
func TestHandWrittenCandidatesAreDeleted(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		for _, prefix := range []string{"n_", "", "node_"} {
			_, err := h.operator.Create(node+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
		}
		c := h.join(h.connect())
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		h.requireNoElection()
	})
}
