package leaderelection_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// withPrefix gives all candidates of a test names without a GUID, which hand-written elections
// use.
func withPrefix(f func(h *harness)) func(h *harness) {
	return func(h *harness) {
		h.options = append(h.options, leaderelection.WithNamePrefix("n_"))
		f(h)
	}
}

func withPrefixAndLoss(f func(h *harness, l loss)) func(h *harness, l loss) {
	return func(h *harness, l loss) { withPrefix(func(h *harness) { f(h, l) })(h) }
}

func TestTrap01_CreateReplyLost_NamePrefix(t *testing.T) {
	forEachLoss(t, connectionLosses, 1, withPrefixAndLoss(testCreateReplyLost))
}

func TestTrap10_SessionMovedDuringCreate_NamePrefix(t *testing.T) {
	forEachLoss(t, movedSessions, 1, withPrefixAndLoss(testCreateReplyLost))
}

// A znode of another session with the same prefix belongs to another candidate and is not deleted.
func TestTrap02_OtherOwner_NamePrefix(t *testing.T) {
	withServers(t, 1, withPrefix(func(h *harness) {
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

// A znode of the same session with other data does not belong to the candidate.
func TestTrap02_OtherData_NamePrefix(t *testing.T) {
	withServers(t, 1, withPrefix(func(h *harness) {
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("another purpose of the program"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		require.Equal(h, other, c.newest().NowFollowing)
		c.resign()
		h.requireIDs(other)
	}))
}

func TestTrap02_SessionExpiresBeforeSearch_NamePrefix(t *testing.T) {
	withServers(t, 1, withPrefix(testSessionExpiresBeforeSearch))
}

func TestTrap40_ResignDuringCreate_NamePrefix(t *testing.T) {
	forEachLoss(t, connectionLosses[2:], 1, withPrefixAndLoss(func(h *harness, l loss) {
		l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1})
		testResignDuringCreate(h, func() {})
	}))
}

// A server that lags behind answers the search.
func TestTrap03_SearchAtLaggingServer_NamePrefix(t *testing.T) {
	withServers(t, 3, withPrefix(func(h *harness) {
		lagging, conn := h.ensemble.Server(1), h.connect()
		lagging.Lag()
		lost := h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.advance(timeout / 4)
		require.Empty(h, c.received(), "the outcome is not known yet")
		lagging.Heal()
		h.advance(0)
		c.requireLeads()
		c.requireOnlyCandidate()
		require.Len(h, h.createdIDs(), 1)
	}))
}

// A znode that the search has not found appears later, before the znode that the candidate uses.
func TestTrap03_SecondZnodeAppearsLate_NamePrefix(t *testing.T) {
	withServers(t, 1, withPrefix(func(h *harness) {
		conn := h.connect()
		ahead := h.createContender()
		h.remove(h.createContender()) // its number is not used again
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
		_, err := h.operator.Set(ahead, []byte("makes the candidate list again"), -1)
		require.NoError(h, err)
		h.advance(0)
		h.requireIDs(ahead, c.ID())
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
		// A znode that appears even later is deleted when the candidate resigns.
		late("0000000000")
		c.resign()
		h.requireIDs()
	}))
}

// If several candidates use one connection and one create loses its reply, each candidate still
// uses the znode that it has created.
func TestTrap01_SeveralCandidates_NamePrefix(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		forEachLoss(t, connectionLosses, 1, withPrefixAndLoss(func(h *harness, l loss) {
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
