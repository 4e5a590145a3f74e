package leaderelection_test

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestFinalStatus_ErrorIdentifiesReason checks that errors.Is recognizes the reason for which a candidacy has
// ended, and no other reason, in the final status and in the result of ElectLeader.
func TestFinalStatus_ErrorIdentifiesReason(t *testing.T) {
	all := []error{
		leaderelection.ErrElectionOver, leaderelection.ErrDeleted, leaderelection.ErrSessionExpired,
		leaderelection.ErrConnClosed, leaderelection.ErrPermission, leaderelection.ErrUnreachable,
	}
	for name, end := range map[string]struct {
		want error
		do   func(h *harness, c *candidate) error
	}{
		"the election is deleted": {leaderelection.ErrElectionOver, func(h *harness, _ *candidate) error {
			return leaderelection.DeleteElection(h.operator, node)
		}},
		"the znode is deleted": {leaderelection.ErrDeleted, func(h *harness, c *candidate) error {
			return h.operator.Delete(c.ID(), -1)
		}},
		"the session ends": {leaderelection.ErrSessionExpired, func(h *harness, c *candidate) error {
			return h.srv.ExpireSession(c.conn.SessionID())
		}},
		"the session ends, without a connection": {leaderelection.ErrSessionExpired, func(h *harness, c *candidate) error {
			h.srv.Refuse(true)
			h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
			h.advance(2 * timeout)
			h.heal()
			return nil
		}},
		"the connection is closed": {leaderelection.ErrConnClosed, func(_ *harness, c *candidate) error {
			c.conn.Close()
			return nil
		}},
	} {
		for _, role := range []leaderelection.Role{leaderelection.Leader, leaderelection.Follower} {
			runWithServers(t, name+" of a "+role.String(), 1, func(h *harness) {
				if role == leaderelection.Follower {
					h.join(h.connect())
				}
				c := h.join(h.connect())
				first := c.newestStatus()
				require.Equal(h, role, first.Role)
				require.NoError(h, end.do(h, c))
				h.advance(timeout)
				got := c.requireOver()
				for _, err := range all {
					if err == end.want {
						require.ErrorIs(h, got, err)
					} else {
						require.NotErrorIs(h, got, err)
					}
				}
				require.Equal(h, got, c.newestStatus().Err)
				require.Equal(h, c.newestStatus().Status, c.Current())
				if role == leaderelection.Leader {
					require.Error(h, first.Leadership.Err())
				}
			})
		}
	}
}

// TestElectLeader_ReturnsErrDeletedIfServersAreUnreachable checks that a candidate whose znode was deleted ends
// with ErrDeleted if ZooKeeper does not answer when the candidate asks for the reason, and does not wait
// forever.
func TestElectLeader_ReturnsErrDeletedIfServersAreUnreachable(t *testing.T) {
	for _, role := range []leaderelection.Role{leaderelection.Leader, leaderelection.Follower} {
		runWithServers(t, role.String(), 1, func(h *harness) {
			if role == leaderelection.Follower {
				h.join(h.connect())
			}
			c := h.join(h.connect())
			require.Equal(h, role, c.newestStatus().Role)
			unreachable := h.srv.Before(zktest.Match{Op: zktest.OpExists, Path: path.Join(node, "DONE"), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				h.srv.Refuse(true)
				return zktest.Cut(q)
			})
			h.remove(c.ID())
			h.advance(timeout + 3*time.Second)
			bubble.RequireRun(h, unreachable)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
			h.srv.Refuse(false)
		})
	}
}

// TestNewElection_ErrorIdentifiesReason checks that errors.Is recognizes the reason in an error of NewElection,
// and in an error of ElectLeader before the candidate has joined.
func TestNewElection_ErrorIdentifiesReason(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		_, err := leaderelection.NewElection(nil, node)
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		_, err = leaderelection.NewElection(conn, node+"/")
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		_, err = leaderelection.NewElection(conn, "/missing")
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
		_, err = h.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(h, err)
		c := h.join(conn)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrPermission)
		require.ErrorIs(h, c.requireOver(), zk.ErrNoAuth, "the error of ZooKeeper is not wrapped")

		// If no server answers, NewElection and ElectLeader wait for a session timeout.
		late := h.newCandidate(node, conn)
		h.srv.Refuse(true)
		h.srv.DropConnections(conn.SessionID())
		h.advance(0)
		begin := time.Now()
		_, err = leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		require.ErrorContains(h, err, "election at "+node+": the server does not answer (")
		require.Equal(h, timeout, time.Since(begin))
		late.start()
		h.advance(timeout - time.Millisecond)
		require.Empty(h, late.receivedStatuses())
		h.advance(timeout / 2) // the candidate waits for the removal of a znode that it may have created
		require.ErrorIs(h, late.requireOver(), leaderelection.ErrUnreachable)
		require.ErrorContains(h, late.requireOver(), "the connection has no session")
	})
}

// TestElectLeader_FollowsUnusualForeignCandidates checks that candidates can follow and observe a candidate
// whose znode another program has written in an unusual way, and that they lead after it has left.
func TestElectLeader_FollowsUnusualForeignCandidates(t *testing.T) {
	secret := zk.DigestACL(zk.PermAll, "u", "p")
	withoutRead := zk.WorldACL(zk.PermAll &^ zk.PermRead)
	for name, c := range map[string]struct {
		prefix string
		data   []byte
		acl    []zk.ACL
		edit   []byte // data that the test writes to the znode after its creation
	}{
		"no right to read":             {"n_", nil, withoutRead, nil},
		"no right at all":              {"n_", []byte("name"), secret, nil},
		"protected, no right to read":  {"_c_00000000-0000-4000-8000-000000000000-latch-", nil, withoutRead, nil},
		"data is not text":             {"n_", []byte{0xff, 0xfe, 0}, openACL, nil},
		"data is JSON of another kind": {"n_", []byte(`{"name":[1,2`), openACL, []byte(`[]`)},
		"data is larger than buffers":  {"n_", make([]byte, 100<<10), openACL, nil},
		"data becomes too large":       {"n_", nil, openACL, make([]byte, 100<<10)},
		"data is edited":               {"n_", []byte("name"), openACL, []byte("other\x00name")},
		"name is long":                 {strings.Repeat("x", 10_000) + "-", nil, openACL, nil},
		"name has special signs":       {"ü %s-", nil, openACL, nil},
	} {
		runWithServers(t, name, 1, func(h *harness) {
			earlier := h.join(h.connect())
			foreign := h.connectUnlimited()
			id, err := foreign.Create(node+"/"+c.prefix, c.data, zk.FlagEphemeral|zk.FlagSequence, c.acl)
			require.NoError(h, err)
			second, third := h.join(h.connect()), h.join(h.connect(), leaderelection.WithRejoin())
			h.advance(timeout)
			require.Equal(h, id, second.newestStatus().NowFollowing)
			if c.edit != nil {
				_, err := foreign.Set(id, c.edit, -1)
				require.NoError(h, err)
				h.advance(timeout)
			}
			third.requireFollows(second)
			earlier.requireLeads()
			require.NoError(h, earlier.Resign())
			h.advance(timeout)
			observed, err := leaderelection.Observe(h.Context(), second.conn, node)
			require.NoError(h, err)
			require.Equal(h, id, (<-observed).Leader.ID)
			all, err := leaderelection.Candidates(h.Context(), second.conn, node)
			require.NoError(h, err)
			require.Len(h, all, 3)
			require.Equal(h, id, all[0].ID)
			require.Equal(h, h.stat(id).Czxid, all[0].Token)
			if max(len(c.data), len(c.edit)) > 64<<10 {
				require.Empty(h, all[0].Name)
			}

			require.NoError(h, foreign.Delete(id, -1))
			h.advance(15 * time.Second) // without an event, the candidate notices the deletion by a later read
			second.requireLeads()
			require.Equal(h, second.ID(), (<-observed).Leader.ID)
			require.NoError(h, second.Resign())
			h.advance(0)
			third.requireLeads()
		})
	}
}

// TestElectLeader_EndsIfServersRequireAuthentication checks that a leader, a follower and a new candidate that
// are not authenticated end with the server's answer after the servers have begun to require authentication,
// instead of repeating their requests forever (kazoo #594).
func TestElectLeader_EndsIfServersRequireAuthentication(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, follower := h.join(h.connect()), h.join(h.connect())
		both, late := []*candidate{leader, follower}, h.newCandidate(node, h.connect())
		stop := bubble.RequireAuthentication(h.srv)
		h.srv.DropConnections()
		h.advance(30 * time.Second)
		late.start()
		h.advance(30 * time.Second)
		for _, c := range append(both, late) {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrPermission)
			require.ErrorContains(h, c.requireOver(), "SESSIONCLOSEDREQUIRESASLAUTH -124 from "+c.conn.Server())
		}
		conn := h.connect()
		_, err := leaderelection.NewElection(conn, node)
		require.ErrorIs(h, err, leaderelection.ErrPermission)
		require.ErrorIs(h, leaderelection.DeleteElection(conn, node), leaderelection.ErrPermission)
		stop()
	})
}

// TestElectLeader_ContinuesAfterTemporaryRejection checks that a candidate with WithRejoin that has joined
// before continues after the servers have rejected its requests for a while, that none of its earlier znodes
// remains, and that a candidate that has never joined ends.
func TestElectLeader_ContinuesAfterTemporaryRejection(t *testing.T) {
	authentication := func(h *harness) func() {
		end := bubble.RequireAuthentication(h.srv)
		h.srv.DropConnections()
		return end
	}
	for _, c := range []struct {
		name  string
		lasts time.Duration
		begin func(h *harness) (end func())
	}{
		{"quota", time.Minute, func(h *harness) func() {
			hook := h.srv.Before(zktest.Match{}, func(q *zktest.Request) zktest.Verdict {
				if q.Op == zktest.OpCreate || q.Op == zktest.OpMulti && slices.Contains(q.Paths, node) {
					return zktest.Fail(zktest.Code(-125))(q)
				}
				return zktest.Pass(q)
			})
			for _, c := range h.candidates {
				h.expire(c.conn)
			}
			return hook.Remove
		}},
		{"authentication, for less than the session timeout", 3 * time.Second, authentication},
		{"authentication", time.Minute, authentication},
	} {
		runWithServers(t, c.name, 1, func(h *harness) {
			a := h.join(h.connect(), leaderelection.WithRejoin())
			b := h.join(h.connect(), leaderelection.WithRejoin())
			first := h.newCandidate(node, h.connect(), leaderelection.WithRejoin())
			a.requireLeads()
			begin := time.Now()
			end := c.begin(h)
			first.start()
			h.advance(c.lasts)
			require.Error(h, first.requireOver(), "it has not joined before")
			require.ErrorContains(h, first.requireOver(), " from "+first.conn.Server()+"): ")
			for _, x := range []*candidate{a, b} {
				require.Zero(h, x.Current().Role, "it is a follower without a znode")
				require.NoError(h, x.Current().Err)
			}
			creates := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpCreate && e.Time.After(begin) })
			require.Less(h, len(creates), 60, "they pause")
			end()
			h.advance(10 * time.Second)
			h.requireChildren(namesOf(a, b)...)
			if a.Current().Role != leaderelection.Leader {
				a, b = b, a
			}
			a.requireLeads()
			b.requireFollows(a)
		})
	}
}

// TestElectLeader_EndsIfServersRejectLeaseCheck checks that a leader ends with an error if the servers answer
// the check of its lease with a permanent error. Otherwise the leader would only lose its lease.
func TestElectLeader_EndsIfServersRejectLeaseCheck(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, next := h.join(h.connect()), h.join(h.connect())
		leader.requireLeads()
		hook := h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: leader.conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-1)))
		h.advance(timeout)
		bubble.RequireRun(h, hook)
		require.ErrorContains(h, leader.requireOver(), "SYSTEMERROR -1 from")
		next.requireLeads()
	})
}

// TestElectLeader_LeavesNoZnodeAfterRejectedRemoval checks that a candidate that joins again after the servers
// have rejected both a check and the deletion of its znode does not follow that znode, and that Resign does not
// report later that the znode may exist.
func TestElectLeader_LeavesNoZnodeAfterRejectedRemoval(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		a := h.join(h.connect(), leaderelection.WithRejoin())
		a.requireLeads()
		before, session := a.ID(), a.conn.SessionID()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-124)))
		removal := h.srv.Before(zktest.Match{Op: zktest.OpDelete, Session: session, Nth: 1}, zktest.Fail(zktest.Code(-124)))
		h.advance(timeout)
		bubble.RequireRun(h, removal)
		require.NotEqual(h, before, a.ID())
		a.requireLeads()
		h.requireChildren(namesOf(a)...)
		require.NoError(h, a.Resign())
	})
}

// TestElectLeader_PausesBetweenFailingRequests checks that a candidate pauses between requests to a server that
// answers each of them immediately with the error that the session has moved (ZOOKEEPER-2886).
// Scenario 9 of docs/traps.md.
func TestElectLeader_PausesBetweenFailingRequests(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpMulti} {
		runWithServers(t, op.String(), 1, func(h *harness) {
			ahead, conn := h.createContender(), h.connect()
			c := h.newCandidate(node, conn)
			moved := h.srv.Before(zktest.Match{Op: op, Session: conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
			h.srv.ResetLog()
			c.start()
			h.advance(time.Minute)
			require.Less(h, h.srv.Log().Session(conn.SessionID()).Count(op), 300, "more than five requests a second")
			c.requireNeverLed()
			moved.Remove()
			h.advance(timeout)
			require.Equal(h, ahead, c.newestStatus().NowFollowing)
			h.remove(ahead)
			h.advance(timeout)
			c.requireLeads()
			c.requireOnlyCandidate()
		})
	}
}

// TestElectLeader_EndsWithErrPermissionIfDenied checks that a candidate without a permission that it needs ends
// with ErrPermission, and does not silently stop trying (CURATOR-15, CURATOR-54, CURATOR-104, etcd #19597).
// Scenario 41 of docs/traps.md.
func TestElectLeader_EndsWithErrPermissionIfDenied(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name string
		acl  []zk.ACL // ACL of the election node
		own  []zk.ACL // ACL of the znodes that the candidate creates
	}{
		{"create", without(zk.PermCreate), openACL},
		{"list", without(zk.PermRead), openACL},
		{"read its own znode", openACL, without(zk.PermRead)},
	} {
		runWithServers(t, c.name, 1, func(h *harness) {
			_, err := h.operator.SetACL(node, c.acl, -1)
			require.NoError(h, err)
			e := h.join(h.connect(), leaderelection.WithRejoin(), leaderelection.WithACL(c.own))
			require.ErrorIs(h, e.requireOver(), leaderelection.ErrPermission)
			h.requireIDs()
		})
	}
}

// TestElectLeader_SurvivesOrReportsUnknownErrorCode checks that a candidate that receives an unknown error code
// either ends with an error that contains the code or leads later, and that the code of a busy server does not
// end the candidacy (CURATOR-671).
// Scenario 41 of docs/traps.md.
func TestElectLeader_SurvivesOrReportsUnknownErrorCode(t *testing.T) {
	for code, busy := range map[zktest.Code]bool{-99: false, -127: true} {
		k := 1
		for met := true; met; k++ {
			withServers(t, 1, func(h *harness) {
				ahead, c := h.createContender(), h.newCandidate(node, h.connect())
				strange := h.srv.Before(zktest.Match{Session: c.conn.SessionID(), Path: node + "*", Nth: k}, zktest.Fail(code))
				c.start()
				h.advance(timeout)
				h.remove(ahead)
				h.advance(timeout)
				met = bubble.HasRun(strange)
				if busy || c.newestStatus().Err == nil {
					c.requireLeads()
					return
				}
				require.ErrorContains(h, c.requireOver(), "-99", "request %d", k)
				require.NoError(h, c.Resign())
				h.requireIDs()
			})
		}
		require.Greater(t, k, 12)
	}
}
