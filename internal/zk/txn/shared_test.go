package txn

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// createN creates the directory of the shared writer.
var createN = Transaction{CreatesDir: true, Ops: []any{&zk.CreateRequest{Path: "/n", Acl: openACL}}}

// setN changes the data of the directory. The version shows how often that was applied.
func setN(version int32) Transaction {
	return Transaction{Alone: true, Ops: []any{&zk.SetDataRequest{Path: "/n", Data: []byte("x"), Version: version}}}
}

func (h *harness) versionOfN() int32 {
	_, stat, err := h.conn.Get("/n")
	require.NoError(h, err)
	return stat.Version
}

// One request creates the directory and the record, and each later transaction is one request.
func TestCreatesDir(t *testing.T) {
	runShared(t, func(h *harness) {
		require.ErrorIs(h, h.w.Start(Transaction{}).Outcome().Err, zk.ErrNoNode, "the writer has created the directory")
		h.srv.ResetLog()
		created := h.apply(createN)
		require.Len(h, h.srv.Log(), 1)
		_, stat, err := h.conn.Get("/n")
		require.NoError(h, err)
		require.Equal(h, stat.Czxid, created.Zxid)
		for version := range int32(5) {
			h.srv.ResetLog()
			o := h.apply(setN(version))
			require.Len(h, h.srv.Log(), 1)
			require.Equal(h, created.Record, o.Record)
		}
		children, _, err := h.conn.Children("/n")
		require.NoError(h, err)
		require.Len(h, children, 1)
		require.True(h, strings.HasPrefix(children[0], sharedPrefix))
		o := h.w.Start(createN).Outcome()
		require.ErrorIs(h, o.Err, zk.ErrNodeExists)
		require.Zero(h, o.Failed)
	})
}

// If the directory exists, the transaction fails, also after a request that was lost.
func TestCreatesDir_FailsIfItExists(t *testing.T) {
	runShared(t, func(h *harness) {
		_, err := h.conn.Create("/n", nil, 0, openACL)
		require.NoError(h, err)
		for range 2 {
			o := h.w.Start(createN).Outcome()
			require.ErrorIs(h, o.Err, zk.ErrNodeExists)
			require.Zero(h, o.Failed)
			require.Empty(h, h.w.Record())
			h.srv.Before(firstMulti, zktest.Cut)
		}
	})
}

// If a message is lost, the writer finds out that it has created the directory.
func TestCreatesDir_AppliedOnceIfMessagesAreLost(t *testing.T) {
	for name, fault := range map[string]func(srv *zktest.Server){
		"request": func(srv *zktest.Server) { srv.Before(firstMulti, zktest.Cut) },
		"reply":   func(srv *zktest.Server) { srv.After(firstMulti, zktest.Cut) },
		"reply and read": func(srv *zktest.Server) {
			srv.After(firstMulti, zktest.Cut)
			srv.After(zktest.Match{Op: zktest.OpExists, Nth: 1}, zktest.Cut)
		},
	} {
		t.Run(name, func(t *testing.T) {
			runShared(t, func(h *harness) {
				fault(h.srv)
				o := h.apply(createN)
				_, stat, err := h.conn.Get("/n")
				require.NoError(h, err)
				require.Equal(h, stat.Czxid, o.Zxid)
				require.Equal(h, h.conn.SessionID(), o.Session)
				h.apply(setN(0))
			})
		})
	}
}

// If the session expires with the reply, the record is deleted before it can be read, and the
// outcome is unknown.
func TestCreatesDir_UnknownIfSessionExpires(t *testing.T) {
	runShared(t, func(h *harness) {
		h.srv.After(firstMulti, func(q *zktest.Request) zktest.Verdict {
			require.NoError(h, h.srv.ExpireSession(h.conn.SessionID()))
			return zktest.Cut(q)
		})
		require.ErrorIs(h, h.w.Start(createN).Outcome().Err, ErrUnknown)
		require.Zero(h, h.versionOfN())
		h.apply(setN(0))
	})
}
