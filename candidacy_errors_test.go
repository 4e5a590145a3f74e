package leaderelection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C14: errors were texts to search in, and the end of a leader by deletion had
// none that could be told from others. Each end has a value of its own.
func TestFinalStatus_Errors(t *testing.T) {
	all := []error{
		leaderelection.ErrElectionOver, leaderelection.ErrCandidateDeleted, leaderelection.ErrSessionExpired,
		leaderelection.ErrConnClosed, leaderelection.ErrPermission, leaderelection.ErrUnreachable,
	}
	for name, end := range map[string]struct {
		want error
		do   func(h *harness, c *candidate) error
	}{
		"the election is deleted": {leaderelection.ErrElectionOver, func(h *harness, _ *candidate) error {
			return leaderelection.DeleteElection(h.operator, node)
		}},
		"the znode is deleted": {leaderelection.ErrCandidateDeleted, func(h *harness, c *candidate) error {
			return h.operator.Delete(c.ID(), -1)
		}},
		"the session ends": {leaderelection.ErrSessionExpired, func(h *harness, c *candidate) error {
			return h.srv.ExpireSession(c.conn.SessionID())
		}},
		"the connection is closed": {leaderelection.ErrConnClosed, func(_ *harness, c *candidate) error {
			c.conn.Close()
			return nil
		}},
	} {
		for _, role := range []leaderelection.Role{leaderelection.Leader, leaderelection.Follower} {
			t.Run(name+" of a "+role.String(), func(t *testing.T) {
				withServers(t, 1, func(h *harness) {
					if role == leaderelection.Follower {
						h.join(h.connect())
					}
					c := h.join(h.connect())
					first := c.newest()
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
					require.Equal(h, got, c.newest().Err)
					require.Equal(h, c.newest().Status, c.Current())
					if role == leaderelection.Leader {
						require.Error(h, first.Leadership.Err())
					}
				})
			})
		}
	}
}

// C14: so has each reason for which a candidacy cannot begin.
func TestNewElection_Errors(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		for want, call := range map[error]func() error{
			leaderelection.ErrNilConn:     func() error { _, err := leaderelection.NewElection(nil, node); return err },
			leaderelection.ErrNoElection:  func() error { _, err := leaderelection.NewElection(conn, "/missing"); return err },
			leaderelection.ErrInvalidPath: func() error { _, err := leaderelection.NewElection(conn, node+"/"); return err },
		} {
			require.ErrorIs(h, call(), want)
		}
		_, err := h.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(h, err)
		c := h.join(conn)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrPermission)
		require.ErrorIs(h, c.requireOver(), zk.ErrNoAuth, "what ZooKeeper said is wrapped")

		// Nobody answers: known after a session timeout, and no sooner.
		late := h.newCandidate(node, conn)
		h.srv.Refuse(true)
		h.srv.DropConnections(conn.SessionID())
		h.advance(0)
		begin := time.Now()
		_, err = leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		require.Equal(h, timeout, time.Since(begin))
		late.start()
		h.advance(timeout - time.Millisecond)
		require.Empty(h, late.received())
		h.advance(timeout / 2) // at the end it waits for the removal of what it may have created
		require.ErrorIs(h, late.requireOver(), leaderelection.ErrUnreachable)
	})
}

// C9: an error in the midst of a later election was told and then nothing more
// happened: the candidate stood in the way of those behind it.
func TestElectLeader_RequestFails(t *testing.T) {
	for _, fault := range []struct {
		op   zktest.Op
		with error
		end  error // nil: it goes on
	}{
		{zktest.OpGetChildren2, zk.ErrNoAuth, leaderelection.ErrPermission},
		{zktest.OpGetData, zk.ErrNoAuth, leaderelection.ErrPermission},
		{zktest.OpGetChildren2, zk.ErrBadArguments, zk.ErrBadArguments},
		{zktest.OpGetData, zk.ErrBadArguments, zk.ErrBadArguments},
		{zktest.OpGetChildren2, zktest.Code(-127), nil}, // throttled
		{zktest.OpGetData, zktest.Code(-127), nil},
		{zktest.OpGetChildren2, zktest.Code(-4), nil}, // connection loss
		{zktest.OpGetData, zktest.Code(-4), nil},
	} {
		t.Run(fmt.Sprintf("%v is answered with %v", fault.op, fault.with), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				leader, middle := h.join(h.connect()), h.join(h.connect())
				c, last := h.join(h.connect()), h.join(h.connect())
				c.requireFollows(middle)
				hook := h.srv.Before(zktest.Match{Op: fault.op, Session: c.conn.SessionID(), Nth: 1}, zktest.Fail(fault.with))
				if fault.op == zktest.OpGetData {
					// Candidates read a predecessor again after a change of its data.
					_, err := h.operator.Set(middle.ID(), nil, -1)
					require.NoError(h, err)
				} else {
					require.NoError(h, middle.Resign())
				}
				h.advance(100 * time.Millisecond)
				select {
				case <-hook.Ran():
				default:
					require.Fail(h, "nothing was asked for")
				}
				if fault.op == zktest.OpGetData {
					require.NoError(h, middle.Resign())
					h.advance(0)
				}
				if fault.end == nil {
					c.requireFollows(leader)
					last.requireFollows(c)
					require.Equal(h, 2, len(c.received()))
					return
				}
				require.ErrorIs(h, c.requireOver(), fault.end)
				require.ErrorIs(h, c.newest().Err, fault.end)
				h.requireChildren(names(leader, last)...)
				last.requireFollows(leader)
				require.NoError(h, leader.Resign())
				h.advance(0)
				last.requireLeads()
			})
		})
	}
}

// A candidate behind one whose znode it may not read ends with an error that names it.
func TestElectLeader_UnreadablePredecessor(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		require.NoError(h, conn.AddAuth("digest", []byte("u:p")))
		leader := h.join(conn, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
		leader.requireLeads()
		next := h.join(h.connect())
		h.advance(shortTime)
		err := next.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrPermission)
		require.ErrorContains(h, err, leader.ID())
	})
}

// ZOOKEEPER-2886: nor does a server that answers at once, and always that the
// session has moved, get one request after the other.
func TestTrap09_RetriesPause(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpMulti} {
		t.Run(op.String(), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				ahead, conn := h.createContender(), h.connect()
				moved := h.srv.Before(zktest.Match{Op: op, Session: conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
				h.srv.ResetLog()
				c := h.join(conn)
				h.advance(time.Minute)
				require.Less(h, h.srv.Log().Session(conn.SessionID()).Count(op), 300, "more than five a second")
				c.requireNeverLed()
				moved.Remove()
				h.advance(timeout)
				require.Equal(h, ahead, c.newest().NowFollowing)
				h.remove(ahead)
				h.advance(timeout)
				c.requireLeads()
				c.requireOnlyCandidate()
			})
		})
	}
}

// CURATOR-15, CURATOR-54, CURATOR-104, etcd #19597: an error ends the loop in
// silence, and the process never leads again.
func TestTrap41_PermissionDenied(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name string
		acl  []zk.ACL // of the election node
		own  []zk.ACL // of the candidate's znode
	}{
		{"may not create", without(zk.PermCreate), zk.WorldACL(zk.PermAll)},
		{"may not list", without(zk.PermRead), zk.WorldACL(zk.PermAll)},
		{"may not read its own", zk.WorldACL(zk.PermAll), without(zk.PermRead)},
	} {
		t.Run(c.name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				_, err := h.operator.SetACL(node, c.acl, -1)
				require.NoError(h, err)
				e := h.join(h.connect(), leaderelection.WithRejoin(), leaderelection.WithACL(c.own))
				require.ErrorIs(h, e.requireOver(), leaderelection.ErrPermission)
				h.requireIDs()
			})
		})
	}
	t.Run("may not read the predecessor", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			ahead := h.createContender()
			_, err := h.operator.SetACL(ahead, without(zk.PermRead), -1)
			require.NoError(h, err)
			e := h.join(h.connect(), leaderelection.WithRejoin())
			require.ErrorIs(h, e.requireOver(), leaderelection.ErrPermission)
			h.requireIDs(ahead)
		})
	})
}

// CURATOR-518, helix #2815: whatever request the connection breaks at, from the
// first to the last, and however, the candidate goes on.
func TestTrap41_AnyRequestFails(t *testing.T) {
	for _, l := range allLosses {
		t.Run(l.name, func(t *testing.T) {
			k := 1
			for met := true; met; k++ {
				withServers(t, 1, func(h *harness) {
					ahead, conn := h.createContender(), h.connect()
					session := conn.SessionID()
					e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
					require.NoError(h, err)
					broken := l.set(h.srv, zktest.Match{Session: session, Path: node + "*", Nth: k})
					c := h.startElection(e, conn)
					h.advance(timeout + shortTime)
					require.Equal(h, ahead, c.newest().NowFollowing, "request %d", k)
					h.remove(ahead)
					h.advance(2 * timeout)
					if c.newest().Role == leaderelection.Suspended { // just now
						h.advance(timeout)
					}
					require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
					_ = c.Resign()
					h.advance(timeout)
					require.NoError(h, c.Resign(), "request %d", k)
					require.NoError(h, c.requireOver())
					h.requireIDs()
					require.Equal(h, session, conn.SessionID())
					met = met && isMet(broken)
				})
			}
			require.Greater(t, k, 12)
		})
	}
}

// CURATOR-671: an answer that nobody has thought of is told, or does no harm.
func TestTrap41_UnknownError(t *testing.T) {
	k := 1
	for met := true; met; k++ {
		withServers(t, 1, func(h *harness) {
			ahead, conn := h.createContender(), h.connect()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			strange := h.srv.Before(zktest.Match{Session: conn.SessionID(), Path: node + "*", Nth: k}, zktest.Fail(zktest.Code(-99)))
			c := h.startElection(e, conn)
			h.advance(timeout)
			h.remove(ahead)
			h.advance(timeout)
			met = isMet(strange)
			if c.newest().Err == nil {
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
