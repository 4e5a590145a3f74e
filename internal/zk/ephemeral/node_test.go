package ephemeral

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/members/one"
	timeout = 4 * time.Second
	without = "/\n  members container\n"
)

var errDone = errors.New("done")

type world struct {
	*testing.T
	srv *zktest.Server
}

func play(t *testing.T, f func(w world)) {
	synctest.Test(t, func(t *testing.T) { f(world{t, zktest.Start(t)}) })
}

func (w world) connect() *recipe.Setup {
	conn, _, err := w.srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(w, err)
	synctest.Wait()
	s, err := recipe.New(conn, "/members", []recipe.Option{func(s *recipe.Setup) { s.Timeout = timeout }})
	require.NoError(w, err)
	return s
}

func TestCreatedAndRemoved(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		n, err := Create(w.Context(), s, node, []byte("data"))
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Grant().Err())
		require.NotZero(w, n.Grant().Token())

		var taken *Taken
		_, err = Create(w.Context(), w.connect(), node, nil)
		require.ErrorAs(w, err, &taken)
		require.Equal(w, n.Owner(), taken.Owner)
		require.Equal(w, n.Grant().Token(), taken.Czxid)
		_, err = Create(w.Context(), s, node, nil)
		require.ErrorAs(w, err, &taken, "of the same session, but another one's")

		time.Sleep(time.Minute)
		require.NoError(w, n.Grant().Err())
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.NoError(w, n.Remove(w.Context(), errDone))
		require.ErrorIs(w, n.Grant().Err(), errDone)
		require.Equal(w, without, w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}

func TestTrap01_ReplyOrRequestLost(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.srv.Before, w.srv.After} {
			hook(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, zktest.Cut)
			n, err := Create(w.Context(), s, node, nil)
			require.NoError(w, err)
			require.NoError(w, n.Grant().Err())
			require.NoError(w, n.Remove(w.Context(), errDone))
			require.Equal(w, without, w.srv.Tree())
		}
	})
}

// CURATOR-498, KAFKA-1387: the znode of a session that is over.
func TestTrap02_SessionEndsWithTheReply(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.srv.ExpireSession(q.Session))
			return zktest.Cut(q)
		})
		n, err := Create(w.Context(), s, node, nil)
		require.NoError(w, err)
		require.Equal(w, s.Conn.SessionID(), n.Owner())
		require.NoError(w, n.Remove(w.Context(), errDone))
	})
}

func TestEndIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w world, s *recipe.Setup)
		want error
	}{
		"expired, told of the znode first": {func(w world, s *recipe.Setup) { require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID())) }, zkerror.ErrDeleted},
		"out of reach":                     {func(w world, s *recipe.Setup) { w.srv.Blackhole(zktest.BothWays, s.Conn.SessionID()) }, zkerror.ErrLeaseExpired},
		"expired while out of reach": {func(w world, s *recipe.Setup) {
			w.srv.Refuse(true)
			require.NoError(w, w.srv.ExpireSession(s.Conn.SessionID()))
			w.srv.DropConnections()
		}, zkerror.ErrLeaseExpired},
		"deleted":                         {func(w world, s *recipe.Setup) { require.NoError(w, w.connect().Conn.Delete(node, -1)) }, zkerror.ErrDeleted},
		"closed, told of the znode first": {func(w world, s *recipe.Setup) { s.Conn.Close() }, zkerror.ErrDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w world) {
				s := w.connect()
				n, err := Create(w.Context(), s, node, nil)
				require.NoError(w, err)
				test.end(w, s)
				<-n.Grant().Context().Done()
				require.ErrorIs(w, n.Grant().Err(), test.want)
				if name == "out of reach" { // not yet expired
					require.Contains(w, w.srv.Tree(), "one", "told before it is gone")
				}
				w.srv.Refuse(false)
				require.NoError(w, n.Remove(w.Context(), errDone))
				require.NotContains(w, w.srv.Tree(), "one")
			})
		})
	}
}

func TestTrap06_ContextEndsFirst(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := s.Conn.Create("/members", nil, 0, s.ACL)
		require.NoError(w, err)
		w.srv.Delay(zktest.ToClient, 1500*time.Millisecond, s.Conn.SessionID())
		_, err = Create(ctx, s, node, nil)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Contains(w, w.srv.Tree(), "one")
		w.srv.Delay(zktest.ToClient, 0, s.Conn.SessionID())
		time.Sleep(time.Minute)
		require.NotContains(w, w.srv.Tree(), "one")
		require.Equal(w, 1, len(w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpDelete && e.Code == 0 })), "%v", w.srv.Log())
	})
}

func TestNoPermission(t *testing.T) {
	play(t, func(w world) {
		s := w.connect()
		_, err := s.Conn.Create("/members", nil, 0, []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}})
		require.NoError(w, err)
		_, err = Create(w.Context(), s, node, nil)
		require.ErrorIs(w, zkerror.Refine(err), zkerror.ErrPermission)
	})
}
