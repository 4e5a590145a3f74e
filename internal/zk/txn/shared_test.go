package txn

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// playShared runs f in a bubble, with a connection and the shared writer of the directory /n,
// which does not exist.
func playShared(t *testing.T, f func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer)) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(srv)
		w := Shared(Config{Conn: conn, Dir: "/n", ACL: anybody, Log: discard})
		require.Same(t, w, Shared(Config{Conn: conn, Dir: "/n", ACL: anybody, Log: discard}))
		require.Nil(t, w.Conn, "the writer keeps its connection in memory")
		f(t, srv, conn, w)
	})
}

// createN creates the directory.
var createN = Transaction{CreatesDir: true, Ops: []any{&zk.CreateRequest{Path: "/n", Acl: anybody}}}

// set changes the data of the directory. A repetition would be visible in its version.
func set(version int32) Transaction {
	return Transaction{Alone: true, Ops: []any{&zk.SetDataRequest{Path: "/n", Data: []byte("x"), Version: version}}}
}

func versionOfN(t *testing.T, conn *zk.Conn) int32 {
	_, stat, err := conn.Get("/n")
	require.NoError(t, err)
	return stat.Version
}

// The directory and the register are created by one request, and later transactions are one
// request each.
func TestCreatesDir(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		require.ErrorIs(t, w.Do(Transaction{}).Outcome().Err, zk.ErrNoNode, "the writer has created the directory")
		srv.ResetLog()
		created := w.Do(createN).Outcome()
		require.NoError(t, created.Err)
		require.Len(t, srv.Log(), 1)
		_, stat, err := conn.Get("/n")
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, created.Zxid)
		for i := range int32(5) {
			srv.ResetLog()
			o := w.Do(set(i)).Outcome()
			require.NoError(t, o.Err)
			require.Len(t, srv.Log(), 1)
			require.Equal(t, created.Register, o.Register)
		}
		children, _, err := conn.Children("/n")
		require.NoError(t, err)
		require.Len(t, children, 1)
		require.True(t, strings.HasPrefix(children[0], sharedPrefix))
		o := w.Do(createN).Outcome()
		require.ErrorIs(t, o.Err, zk.ErrNodeExists)
		require.Zero(t, o.Failed)
	})
}

func TestCreatesDirThatExists(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		_, err := conn.Create("/n", nil, 0, anybody)
		require.NoError(t, err)
		for range 2 {
			o := w.Do(createN).Outcome()
			require.ErrorIs(t, o.Err, zk.ErrNodeExists)
			require.Zero(t, o.Failed)
			require.Empty(t, w.Register())
			// The same after a request that was lost.
			srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		}
	})
}

func TestCreatesDirWithLostMessages(t *testing.T) {
	for name, lose := range map[string]func(srv *zktest.Server){
		"request": func(srv *zktest.Server) { srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut) },
		"reply":   func(srv *zktest.Server) { srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut) },
		"reply and read": func(srv *zktest.Server) {
			srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
			srv.After(zktest.Match{Op: zktest.OpExists, Nth: 1}, zktest.Cut)
		},
	} {
		t.Run(name, func(t *testing.T) {
			playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
				lose(srv)
				o := w.Do(createN).Outcome()
				require.NoError(t, o.Err)
				_, stat, err := conn.Get("/n")
				require.NoError(t, err)
				require.Equal(t, stat.Czxid, o.Zxid)
				require.Equal(t, conn.SessionID(), o.Session)
				require.NoError(t, w.Do(set(0)).Outcome().Err)
			})
		})
	}
}

// The session expires, and the register with it, before the writer can find out what happened.
func TestCreatesDirInASessionThatExpires(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(t, srv.ExpireSession(conn.SessionID()))
			return zktest.Cut(q)
		})
		require.ErrorIs(t, w.Do(createN).Outcome().Err, ErrUnknown)
		require.Zero(t, versionOfN(t, conn))
		require.NoError(t, w.Do(set(0)).Outcome().Err)
	})
}

// A transaction that is bound to a register is not applied with another one: the directory may
// have been deleted and created again, and have reached the same version.
func TestBoundToARegister(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		require.NoError(t, w.Do(createN).Outcome().Err)
		bound := set(0)
		bound.Register = w.Register()
		require.NoError(t, conn.Delete(w.Register(), -1))
		require.NoError(t, conn.Delete("/n", -1))
		_, err := conn.Create("/n", nil, 0, anybody)
		require.NoError(t, err)
		require.ErrorIs(t, w.Do(bound).Outcome().Err, ErrRegister)
		require.Zero(t, versionOfN(t, conn))
		require.NotEqual(t, bound.Register, w.Register())
		bound.Register = w.Register()
		require.NoError(t, w.Do(bound).Outcome().Err)
	})
}

// The register of a new session is another one.
func TestRegisterOfAnotherSession(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		require.NoError(t, w.Do(createN).Outcome().Err)
		bound := set(0)
		bound.Register = w.Register()
		require.NoError(t, srv.ExpireSession(conn.SessionID()))
		time.Sleep(3 * time.Second) // then the client has a new session
		require.ErrorIs(t, w.Do(bound).Outcome().Err, ErrRegister)
		require.Zero(t, versionOfN(t, conn))
	})
}

func TestRunWithContext(t *testing.T) {
	playShared(t, func(t *testing.T, srv *zktest.Server, conn *zk.Conn, w *Writer) {
		require.NoError(t, w.Do(createN).Outcome().Err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		srv.Pause()
		_, err := w.Run(ctx, set(0))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrUnknown)
		_, err = w.Run(ctx, set(0))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrUnknown, "nothing was sent")
		waiting, giveUp := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := w.Run(waiting, set(0)) // waits for the first one
			result <- err
		}()
		synctest.Wait()
		giveUp()
		err = <-result
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUnknown, "nothing was sent")
		srv.Resume()
		synctest.Wait()
		require.EqualValues(t, 1, versionOfN(t, conn))
		_, err = w.Run(t.Context(), set(1))
		require.NoError(t, err)
	})
}
