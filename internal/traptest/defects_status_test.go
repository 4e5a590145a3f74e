package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// unread has a candidate take part whose statuses nobody reads.
func (h *harness) joinUnread(conn *zk.Conn) *leaderelection.Election {
	c := h.newCandidate(node, conn)
	go c.ElectLeader()
	h.advance(0)
	return c.Election
}

// C13: a reader that was late blocked the election, and then got what had been
// true before.
func TestC13_LateReader(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var ahead []*candidate
		for range 5 {
			ahead = append(ahead, h.join(h.connect()))
		}
		late := h.joinUnread(h.connect())
		behind := h.join(h.connect())
		for i := 4; i >= 0; i-- {
			require.Equal(h, ahead[i].ID(), late.Current().NowFollowing)
			require.NoError(h, ahead[i].Resign())
			h.advance(0)
		}
		require.Equal(h, leaderelection.Leader, late.Current().Role, "it goes on at once")
		s := <-late.Status()
		require.Equal(h, late.Current(), s)
		require.NoError(h, s.Leadership.Err())
		require.Empty(h, late.Status(), "nothing outdated")
		require.NoError(h, late.Resign())
		h.advance(0)
		behind.requireLeads()
	})
}

// C13: nothing told a late reader that a leadership it knew of was over.
func TestC13_LostLeadership(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		late := h.joinUnread(conn)
		told := <-late.Status()
		h.advance(time.Second)
		// Suspended, leading again, and that twice.
		for range 2 {
			h.srv.Refuse(true)
			h.srv.DropConnections(conn.SessionID())
			h.advance(timeout / 2)
			require.Equal(h, leaderelection.Suspended, late.Current().Role)
			h.srv.Refuse(false)
			h.advance(timeout)
			require.Equal(h, leaderelection.Leader, late.Current().Role)
		}
		require.ErrorIs(h, told.Leadership.Err(), leaderelection.ErrLeaseExpired)
		require.Equal(h, leaderelection.Suspended, (<-late.Status()).Role, "the end of what it was told comes first")
		again := <-late.Status()
		require.Equal(h, late.Current(), again)
		require.NoError(h, again.Leadership.Err())
		require.Equal(h, told.Leadership.Token(), again.Leadership.Token())
		require.Empty(h, late.Status())

		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(10 * time.Millisecond)
		require.ErrorIs(h, (<-late.Status()).Err, leaderelection.ErrElectionOver)
		_, open := <-late.Status()
		require.False(h, open)
	})
}

// C14: errors were texts to search in, and the end of a leader by deletion had
// none that could be told from others. Each end has a value of its own.
func TestC14_TypedErrors(t *testing.T) {
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
func TestC14_TypedErrorsAtTheStart(t *testing.T) {
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
