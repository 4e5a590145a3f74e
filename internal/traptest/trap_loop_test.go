package traptest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// kazoo PR 170, #116, #482: something waits for ever on a connection that is
// suspended, or was closed.
func TestTrap22_NothingHangs(t *testing.T) {
	states := []struct {
		name string
		// prepare brings a candidate into the state.
		prepare func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate
	}{
		{"leading", (*harness).join},
		{"following", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			h.createContender()
			return h.join(conn, options...)
		}},
		{"suspended", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			c := h.join(conn, options...)
			h.srv.Refuse(true)
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			h.advance(timeout * 5 / 8)
			require.Equal(h, leaderelection.Suspended, c.newest().Role)
			return c
		}},
		{"disconnected", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			h.createContender()
			c := h.join(conn, options...)
			h.disconnect(conn)
			return c
		}},
		{"creating", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			hold, _ := h.hold()
			h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, hold)
			return h.join(conn, options...)
		}},
		{"entering without a connection", func(h *harness, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			e, err := leaderelection.NewElection(conn, node, append(options, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())...)
			require.NoError(h, err)
			h.disconnect(conn)
			c := h.startElection(e, conn)
			h.advance(0)
			return c
		}},
	}
	ends := []struct {
		name string
		end  func(c *candidate, cancel func())
		want error
	}{
		{"closed", func(c *candidate, _ func()) { c.conn.Close() }, leaderelection.ErrConnClosed},
		{"resigned", func(c *candidate, _ func()) { _ = c.Resign() }, nil},
		{"context", func(c *candidate, cancel func()) { cancel() }, nil},
		{"ended", func(c *candidate, _ func()) { _ = c.EndElection() }, leaderelection.ErrElectionOver},
	}
	for _, state := range states {
		for _, end := range ends {
			t.Run(state.name+", "+end.name, func(t *testing.T) {
				withServers(t, 1, func(h *harness) {
					ctx, cancel := context.WithCancel(h.Context())
					defer cancel()
					c := state.prepare(h, h.connect(), leaderelection.WithContext(ctx))
					h.advance(shortTime) // off the instants at which checks are sent: closing then can hang the client
					returned := async(func() struct{} { end.end(c, cancel); return struct{}{} })
					h.advance(2*time.Second + shortTime)
					require.Len(h, returned, 1, "the call that ends it has not returned")
					if end.want == nil {
						require.NoError(h, c.requireOver())
					} else {
						require.ErrorIs(h, c.requireOver(), end.want)
					}
					_, err := c.multi()
					require.ErrorIs(h, err, leaderelection.ErrNotLeader)
					require.Equal(h, leaderelection.Follower, c.Current().Role)
				})
			})
		}
	}
}

// kazoo #482, with several candidates on the connection: their znodes all go with
// the session, and the server still tells them of each other.
func TestTrap22_CloseWithSeveral(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var all []*candidate
		for range 4 {
			all = append(all, h.join(conn))
		}
		last := h.join(h.connect())
		h.advance(timeout + shortTime) // as above
		conn.Close()
		h.advance(timeout)
		for i, c := range all {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrConnClosed)
			if i > 0 {
				c.requireNeverLed()
			}
		}
		last.requireLeads()
		h.requireIDs(last.ID())
	})
}

// CURATOR-15, CURATOR-54, CURATOR-104, etcd #19597: an error ends the loop in
// silence, and the process never leads again.
func TestTrap41_ErrorsAreTold(t *testing.T) {
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
func TestTrap41_WhateverBreaks(t *testing.T) {
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
func TestTrap41_UnknownErrors(t *testing.T) {
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

// Netflix/curator #76, CURATOR-203, CURATOR-690: what is longer than a server takes
// breaks the connection, again and again. The leaders of one connection are
// checked in one transaction, which may not grow with their number.
func TestTrap37_ManyLeadersOnOneConnection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		var all []*candidate
		for i := range 120 {
			path := fmt.Sprintf("/%03d-%s", i, strings.Repeat("x", 3000))
			e, err := leaderelection.NewElection(conn, path, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			all = append(all, h.startElection(e, conn))
		}
		h.advance(timeout)
		for _, c := range all {
			require.NoError(h, c.requireLeads().Err())
			require.Len(h, c.received(), 1)
		}
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(300<<10))
}

// CURATOR-690: so does a create of a long name, which is refused before.
func TestTrap37_LongClientName(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		name := strings.Repeat("x", 64<<10)
		_, err := leaderelection.NewElection(conn, node, leaderelection.WithClientName(name+"x"))
		require.ErrorIs(h, err, leaderelection.ErrInvalidOption)
		c := h.join(conn, leaderelection.WithClientName(name))
		next := h.join(h.connectUnlimited(), leaderelection.WithClientName(name))
		c.requireLeads()
		next.requireFollows(c)
		next.resign() // which writes the predecessor's data
		c.resign()
		require.Equal(h, 1, h.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(66<<10))
}

// CURATOR-690: a line of thousands is joined, watched and deleted by requests of
// few kilobytes, and a listing of hundreds.
func TestTrap37_LongLine(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		const count = 2000
		ahead := ""
		for range count {
			ahead = h.createContender()
		}
		conn := h.connectUnlimited()
		c := h.join(conn)
		require.Equal(h, ahead, c.newest().NowFollowing)
		all, err := leaderelection.Candidates(conn, node)
		require.NoError(h, err)
		require.Len(h, all, count+1)
		require.NoError(h, leaderelection.DeleteElection(conn, node))
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
	}, zktest.WithMaxPacket(32<<10))
}
