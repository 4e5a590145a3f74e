package ephemeral

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func (w world) keep(s *recipe.Setup) *Node {
	n, created := Keep(s, node, []byte("data"))
	require.NoError(w, <-created)
	return n
}

// Trap 21: a short break of the connection is no reason to make the znode flap.
func TestTrap21_KeptOverABreak(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		n := w.keep(s)
		before := w.srv.Tree()
		w.srv.ResetLog()
		w.srv.Blackhole(zktest.BothWays, s.Conn.SessionID())
		time.Sleep(3 * time.Second) // a lease would be over
		w.srv.Heal(s.Conn.SessionID())
		time.Sleep(time.Minute)
		require.NoError(w, n.Grant().Err())
		require.Equal(w, before, w.srv.Tree())
		require.Zero(w, w.srv.Log().Count(zktest.OpCreate, zktest.OpMulti, zktest.OpDelete), "%v", w.srv.Log())
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.Equal(w, without, w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}

func TestEndOfAKeptZnodeIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w world, s *recipe.Setup)
		want error
	}{
		"expired, told of the znode first": {func(w world, s *recipe.Setup) { require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID())) }, zkerror.ErrDeleted},
		"expired while out of reach": {func(w world, s *recipe.Setup) {
			w.srv.Refuse(true)
			w.srv.DropConnections()
			require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID()))
			time.Sleep(time.Second)
			w.srv.Refuse(false)
		}, zkerror.ErrSessionExpired},
		"deleted": {func(w world, s *recipe.Setup) { require.NoError(w, w.connect().Conn.Delete(node, -1)) }, zkerror.ErrDeleted},
		"deleted while out of reach, and the watch is not set anew": {func(w world, s *recipe.Setup) {
			other := w.connect().Conn
			w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
			w.srv.DropConnections(s.Conn.SessionID())
			require.NoError(w, other.Delete(node, -1))
		}, zkerror.ErrDeleted},
		"closed, told of the znode first": {func(w world, s *recipe.Setup) { s.Conn.Close() }, zkerror.ErrDeleted},
		"closed while out of reach": {func(w world, s *recipe.Setup) {
			w.srv.Refuse(true)
			w.srv.DropConnections()
			time.Sleep(time.Second)
			s.Conn.Close()
		}, zkerror.ErrConnClosed},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w world) {
				s := w.connect()
				n := w.keep(s)
				test.end(w, s)
				<-n.Grant().Context().Done()
				require.ErrorIs(w, n.Grant().Err(), test.want)
			})
		})
	}
}

// Trap 40: removed while the create is under way.
func TestTrap40_RemovedBeforeItIsThere(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		_, err := s.Conn.Create("/members", nil, 0, s.ACL)
		require.NoError(w, err)
		w.srv.Delay(zktest.ToClient, time.Second, s.Conn.SessionID())
		n, created := Keep(s, node, nil)
		time.Sleep(100 * time.Millisecond)
		require.Contains(w, w.srv.Tree(), "one")
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.NotContains(w, w.srv.Tree(), "one")
		require.ErrorIs(w, <-created, errDone)
	})
}

// CURATOR-696, and the client library's own: a create that waits while the session ends
// is carried out in the next one. Such a znode is not somebody else's.
func TestTrap11_CreatedInTheNextSession(t *testing.T) {
	for name, lost := range map[string]bool{"answered": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := zktest.Cluster(t, 3)
				w := world{t, c.Leader()}
				conn, _, err := c.Connect(timeout, zk.WithMaxBufferSize(64<<10))
				require.NoError(w, err)
				synctest.Wait()
				s, err := recipe.New(conn, "/members", []recipe.Option{func(s *recipe.Setup) { s.Timeout = timeout }})
				require.NoError(w, err)
				require.NoError(w, s.MakeDir(w.Context()))
				before := conn.SessionID()
				c.Server(0).Before(zktest.Match{Op: zktest.OpConnect, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					require.NoError(w, w.srv.ExpireSession(before))
					time.Sleep(time.Second)
					return zktest.Pass(q)
				})
				if lost {
					w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
				}
				for i := range c.Len() {
					c.Server(i).DropConnections()
				}
				time.Sleep(500 * time.Millisecond)
				require.Equal(w, before, conn.SessionID())
				n, created := Keep(s, node, nil)
				require.NoError(w, <-created)
				require.NotEqual(w, before, n.Owner())
				require.Equal(w, conn.SessionID(), n.Owner())
				time.Sleep(time.Minute)
				require.NoError(w, n.Grant().Err())
				require.NoError(w, n.Remove(w.Context(), errDone))
				require.NotContains(w, c.Tree(), "one")
			})
		})
	}
}

// It is deleted as soon as it is there.
func TestDeletedBeforeItIsRead(t *testing.T) {
	play(t, func(w world) {
		s, other := w.connect(), w.connect().Conn
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: node}, func(q *zktest.Request) zktest.Verdict {
			_ = other.Delete(node, -1)
			return zktest.Pass(q)
		})
		_, err := Create(w.Context(), s, node, nil)
		require.ErrorIs(w, err, zkerror.ErrDeleted)
	})
}

// Trap 40: the create waits while there is no session at all.
func TestTrap40_RemovedBeforeThereIsASession(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		require.NoError(w, s.MakeDir(w.Context()))
		require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID()))
		w.srv.Before(zktest.Match{Op: zktest.OpConnect, Nth: 2}, func(q *zktest.Request) zktest.Verdict {
			time.Sleep(time.Second)
			return zktest.Pass(q)
		})
		for s.Conn.SessionID() != 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		require.Zero(w, s.Conn.SessionID())
		n, created := Keep(s, node, nil)
		time.Sleep(10 * time.Millisecond)
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.ErrorIs(w, <-created, errDone)
		require.NotZero(w, s.Conn.SessionID())
		require.Equal(w, without, w.srv.Tree())
	})
}
