package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// unread has a candidate take part whose statuses nobody reads.
func (w *world) unread(conn *zk.Conn) *leaderelection.Election {
	c := w.candidateAt(node, conn)
	go c.ElectLeader()
	w.pass(0)
	return c.Election
}

// C13: a reader that was late blocked the election, and then got what had been
// true before.
func TestC13_LateReader(t *testing.T) {
	play(t, 1, func(w *world) {
		var ahead []*candidate
		for range 5 {
			ahead = append(ahead, w.enlist(w.connect()))
		}
		late := w.unread(w.connect())
		behind := w.enlist(w.connect())
		for i := 4; i >= 0; i-- {
			require.Equal(w, ahead[i].ID(), late.Current().NowFollowing)
			require.NoError(w, ahead[i].Resign())
			w.pass(0)
		}
		require.Equal(w, leaderelection.Leader, late.Current().Role, "it goes on at once")
		s := <-late.Status()
		require.Equal(w, late.Current(), s)
		require.NoError(w, s.Leadership.Err())
		require.Empty(w, late.Status(), "nothing outdated")
		require.NoError(w, late.Resign())
		w.pass(0)
		behind.leads()
	})
}

// C13: nothing told a late reader that a leadership it knew of was over.
func TestC13_LostLeadership(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		late := w.unread(conn)
		told := <-late.Status()
		w.pass(time.Second)
		// Suspended, leading again, and that twice.
		for range 2 {
			w.srv.Refuse(true)
			w.srv.DropConnections(conn.SessionID())
			w.pass(timeout / 2)
			require.Equal(w, leaderelection.Suspended, late.Current().Role)
			w.srv.Refuse(false)
			w.pass(timeout)
			require.Equal(w, leaderelection.Leader, late.Current().Role)
		}
		require.ErrorIs(w, told.Leadership.Err(), leaderelection.ErrLeaseExpired)
		require.Equal(w, leaderelection.Suspended, (<-late.Status()).Role, "the end of what it was told comes first")
		again := <-late.Status()
		require.Equal(w, late.Current(), again)
		require.NoError(w, again.Leadership.Err())
		require.Equal(w, told.Leadership.Token(), again.Leadership.Token())
		require.Empty(w, late.Status())

		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(10 * time.Millisecond)
		require.ErrorIs(w, (<-late.Status()).Err, leaderelection.ErrElectionOver)
		_, open := <-late.Status()
		require.False(w, open)
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
		do   func(w *world, c *candidate) error
	}{
		"the election is deleted": {leaderelection.ErrElectionOver, func(w *world, _ *candidate) error {
			return leaderelection.DeleteElection(w.operator, node)
		}},
		"the znode is deleted": {leaderelection.ErrCandidateDeleted, func(w *world, c *candidate) error {
			return w.operator.Delete(c.ID(), -1)
		}},
		"the session ends": {leaderelection.ErrSessionExpired, func(w *world, c *candidate) error {
			return w.srv.ExpireSession(c.conn.SessionID())
		}},
		"the connection is closed": {leaderelection.ErrConnClosed, func(_ *world, c *candidate) error {
			c.conn.Close()
			return nil
		}},
	} {
		for _, role := range []leaderelection.Role{leaderelection.Leader, leaderelection.Follower} {
			t.Run(name+" of a "+role.String(), func(t *testing.T) {
				play(t, 1, func(w *world) {
					if role == leaderelection.Follower {
						w.enlist(w.connect())
					}
					c := w.enlist(w.connect())
					first := c.last()
					require.Equal(w, role, first.Role)
					require.NoError(w, end.do(w, c))
					w.pass(timeout)
					got := c.over()
					for _, err := range all {
						if err == end.want {
							require.ErrorIs(w, got, err)
						} else {
							require.NotErrorIs(w, got, err)
						}
					}
					require.Equal(w, got, c.last().Err)
					require.Equal(w, c.last().Status, c.Current())
					if role == leaderelection.Leader {
						require.Error(w, first.Leadership.Err())
					}
				})
			})
		}
	}
}

// C14: so has each reason for which a candidacy cannot begin.
func TestC14_TypedErrorsAtTheStart(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		for want, call := range map[error]func() error{
			leaderelection.ErrNilConn:     func() error { _, err := leaderelection.NewElection(nil, node); return err },
			leaderelection.ErrNoElection:  func() error { _, err := leaderelection.NewElection(conn, "/missing"); return err },
			leaderelection.ErrInvalidPath: func() error { _, err := leaderelection.NewElection(conn, node+"/"); return err },
		} {
			require.ErrorIs(w, call(), want)
		}
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		c := w.enlist(conn)
		require.ErrorIs(w, c.over(), leaderelection.ErrPermission)
		require.ErrorIs(w, c.over(), zk.ErrNoAuth, "what ZooKeeper said is wrapped")

		// Nobody answers: known after a session timeout, and no sooner.
		late := w.candidateAt(node, conn)
		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		w.pass(0)
		begin := time.Now()
		_, err = leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.ErrorIs(w, err, leaderelection.ErrUnreachable)
		require.Equal(w, timeout, time.Since(begin))
		late.begin()
		w.pass(timeout - time.Millisecond)
		require.Empty(w, late.all())
		w.pass(timeout / 2) // at the end it waits for the removal of what it may have created
		require.ErrorIs(w, late.over(), leaderelection.ErrUnreachable)
	})
}
