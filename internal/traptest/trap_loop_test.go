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
		prepare func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate
	}{
		{"leading", (*world).enlist},
		{"following", func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			w.stand(w.operator)
			return w.enlist(conn, options...)
		}},
		{"suspended", func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			c := w.enlist(conn, options...)
			w.srv.Refuse(true)
			w.srv.Blackhole(zktest.BothWays, conn.SessionID())
			w.pass(timeout * 5 / 8)
			require.Equal(w, leaderelection.Suspended, c.last().Role)
			return c
		}},
		{"disconnected", func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			w.stand(w.operator)
			c := w.enlist(conn, options...)
			w.cut(conn)
			return c
		}},
		{"creating", func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			answer, _ := w.gate()
			w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				<-answer
				return zktest.Pass(q)
			})
			return w.enlist(conn, options...)
		}},
		{"entering without a connection", func(w *world, conn *zk.Conn, options ...leaderelection.Option) *candidate {
			e, err := leaderelection.NewElection(conn, node, append(options, leaderelection.WithSessionTimeout(timeout), leaderelection.WithRejoin())...)
			require.NoError(w, err)
			w.cut(conn)
			c := w.run(e, conn)
			w.pass(0)
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
				play(t, 1, func(w *world) {
					ctx, cancel := context.WithCancel(w.Context())
					defer cancel()
					c := state.prepare(w, w.connect(), leaderelection.WithContext(ctx))
					w.pass(moment) // off the instants at which checks are sent: closing then can hang the client
					returned := async(func() struct{} { end.end(c, cancel); return struct{}{} })
					w.pass(2*time.Second + moment)
					require.Len(w, returned, 1, "the call that ends it has not returned")
					if end.want == nil {
						require.NoError(w, c.over())
					} else {
						require.ErrorIs(w, c.over(), end.want)
					}
					_, err := c.Multi()
					require.ErrorIs(w, err, leaderelection.ErrNotLeader)
					require.Equal(w, leaderelection.Follower, c.Current().Role)
				})
			})
		}
	}
}

// kazoo #482, with several candidates on the connection: their znodes all go with
// the session, and the server still tells them of each other.
func TestTrap22_CloseWithSeveral(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		var all []*candidate
		for range 4 {
			all = append(all, w.enlist(conn))
		}
		last := w.enlist(w.connect())
		w.pass(timeout + moment) // as above
		conn.Close()
		w.pass(timeout)
		for i, c := range all {
			require.ErrorIs(w, c.over(), leaderelection.ErrConnClosed)
			if i > 0 {
				c.never()
			}
		}
		last.leads()
		w.line(last.ID())
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
			play(t, 1, func(w *world) {
				_, err := w.operator.SetACL(node, c.acl, -1)
				require.NoError(w, err)
				e := w.enlist(w.connect(), leaderelection.WithRejoin(), leaderelection.WithACL(c.own))
				require.ErrorIs(w, e.over(), leaderelection.ErrPermission)
				w.line()
			})
		})
	}
	t.Run("may not read the predecessor", func(t *testing.T) {
		play(t, 1, func(w *world) {
			ahead := w.stand(w.operator)
			_, err := w.operator.SetACL(ahead, without(zk.PermRead), -1)
			require.NoError(w, err)
			e := w.enlist(w.connect(), leaderelection.WithRejoin())
			require.ErrorIs(w, e.over(), leaderelection.ErrPermission)
			w.line(ahead)
		})
	})
}

// CURATOR-518, helix #2815: whatever request the connection breaks at, from the
// first to the last, and however, the candidate goes on.
func TestTrap41_WhateverBreaks(t *testing.T) {
	for _, l := range append(losses, answers...) {
		t.Run(l.name, func(t *testing.T) {
			k := 1
			for met := true; met; k++ {
				play(t, 1, func(w *world) {
					ahead, conn := w.stand(w.operator), w.connect()
					session := conn.SessionID()
					e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
					require.NoError(w, err)
					broken := l.set(w.srv, zktest.Match{Session: session, Path: node + "*", Nth: k})
					c := w.run(e, conn)
					w.pass(timeout + moment)
					require.Equal(w, ahead, c.last().NowFollowing, "request %d", k)
					w.remove(ahead)
					w.pass(2 * timeout)
					if c.last().Role == leaderelection.Suspended { // just now
						w.pass(timeout)
					}
					require.Equal(w, w.stat(c.ID()).Czxid, c.leads().Token())
					_ = c.Resign()
					w.pass(timeout)
					require.NoError(w, c.Resign(), "request %d", k)
					require.NoError(w, c.over())
					w.line()
					require.Equal(w, session, conn.SessionID())
					met = met && ran(broken)
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
		play(t, 1, func(w *world) {
			ahead, conn := w.stand(w.operator), w.connect()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
			require.NoError(w, err)
			strange := w.srv.Before(zktest.Match{Session: conn.SessionID(), Path: node + "*", Nth: k}, zktest.Fail(zktest.Code(-99)))
			c := w.run(e, conn)
			w.pass(timeout)
			w.remove(ahead)
			w.pass(timeout)
			met = ran(strange)
			if c.last().Err == nil {
				c.leads()
				return
			}
			require.ErrorContains(w, c.over(), "-99", "request %d", k)
			require.NoError(w, c.Resign())
			w.line()
		})
	}
	require.Greater(t, k, 12)
}

// Netflix/curator #76, CURATOR-203, CURATOR-690: what is longer than a server takes
// breaks the connection, again and again. The leaders of one connection are
// checked in one transaction, which may not grow with their number.
func TestTrap37_ManyLeadersOnOneConnection(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		var all []*candidate
		for i := range 120 {
			path := fmt.Sprintf("/%03d-%s", i, strings.Repeat("x", 3000))
			e, err := leaderelection.NewElection(conn, path, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(w, err)
			all = append(all, w.run(e, conn))
		}
		w.pass(timeout)
		for _, c := range all {
			require.NoError(w, c.leads().Err())
			require.Len(w, c.all(), 1)
		}
		require.Equal(w, 1, w.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(300<<10))
}

// CURATOR-690: so does a create of a long name, which is refused before.
func TestTrap37_LongClientName(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		name := strings.Repeat("x", 64<<10)
		_, err := leaderelection.NewElection(conn, node, leaderelection.WithClientName(name+"x"))
		require.ErrorIs(w, err, leaderelection.ErrInvalidOption)
		c := w.enlist(conn, leaderelection.WithClientName(name))
		next := w.enlist(w.connectUnlimited(), leaderelection.WithClientName(name))
		c.leads()
		next.follows(c)
		next.resign() // which writes the predecessor's data
		c.resign()
		require.Equal(w, 1, w.srv.Log().Session(conn.SessionID()).Count(zktest.OpConnect))
	}, zktest.WithMaxPacket(66<<10))
}

// CURATOR-690: a line of thousands is joined, watched and deleted by requests of
// few kilobytes, and a listing of hundreds.
func TestTrap37_LongLine(t *testing.T) {
	play(t, 1, func(w *world) {
		const count = 2000
		ahead := ""
		for range count {
			ahead = w.stand(w.operator)
		}
		conn := w.connectUnlimited()
		c := w.enlist(conn)
		require.Equal(w, ahead, c.last().NowFollowing)
		all, err := leaderelection.Candidates(conn, node)
		require.NoError(w, err)
		require.Len(w, all, count+1)
		require.NoError(w, leaderelection.DeleteElection(conn, node))
		w.pass(moment)
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
	}, zktest.WithMaxPacket(32<<10))
}
