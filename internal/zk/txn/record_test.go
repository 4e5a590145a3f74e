package txn

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRecord_LateRequestFails checks that a request fails that the server reads only after the client has
// reconnected and read the record. Another client sends this late request in the test.
func TestRecord_LateRequestFails(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		path := h.apply(Transaction{}).Record
		data, stat, err := h.Conn.Get(path)
		require.NoError(h, err)
		id, err := strconv.Atoi(string(data))
		require.NoError(h, err)
		operator := h.Connect()
		write := &zk.SetDataRequest{Path: path, Data: strconv.AppendInt(nil, int64(id+1), 10), Version: stat.Version}
		late := append([]any{write}, createItem().Ops...)

		h.Server.Before(firstMulti, zktest.Cut)
		hook := h.Server.After(zktest.Match{Op: zktest.OpSetData, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_, err := operator.Multi(late...)
			require.ErrorIs(h, err, zk.ErrBadVersion)
			return zktest.Pass(q)
		})
		h.apply(createItem())
		require.True(h, bubble.HasRun(hook), "the writer has not written another ID")
		require.Equal(h, 1, h.countItems(), "%s", h.Server.Tree())
	})
}

// TestRecord_RetriesWithPausesIfServerIsBusy checks that the writer pauses between its attempts to write another ID
// if the server rejects the write because it is overloaded.
func TestRecord_RetriesWithPausesIfServerIsBusy(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		begin, tries := time.Now(), 0
		h.Server.Before(firstMulti, zktest.Cut)
		h.Server.Before(zktest.Match{Op: zktest.OpSetData}, func(q *zktest.Request) zktest.Verdict {
			if tries++; time.Since(begin) < 2*time.Second && tries < 1000 {
				return zktest.Fail(zktest.Code(-127))(q) // reject the request as throttled
			}
			return zktest.Pass(q)
		})
		h.apply(createItem())
		require.Greater(h, tries, 1)
		require.Less(h, tries, 50)
	})
}

// TestWriter_CreatesRecordAgainAfterDeletion checks that the writer creates another record if an operator has
// deleted its record.
func TestWriter_CreatesRecordAgainAfterDeletion(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		require.NoError(h, h.Conn.Delete(h.w.RecordOf(h.Conn.SessionID()), -1))
		h.apply(createItem())
		require.Equal(h, 1, h.countItems())
	})
}

// TestRecord_CreatedOnceIfMessagesAreLost checks that the writer creates one record, and not two, if the create of
// the record or its reply is lost.
func TestRecord_CreatedOnceIfMessagesAreLost(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"reply": (*zktest.Server).After, "request": (*zktest.Server).Before,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *writerTest) {
				// The directory does not exist, so the first transaction fails, and the second one creates the
				// record.
				hook(h.Server, zktest.Match{Op: zktest.OpMulti, Nth: 2}, zktest.Cut)
				h.apply(createItem())
				require.Equal(h, 1, h.countZnodes("client-"), "%s", h.Server.Tree())
				_ = h.w.Close()
				require.Zero(h, h.countZnodes("client-"))
			})
		})
	}
}

// TestWriter_IgnoresRecordOfExpiredSession checks that the writer does not use the record of an expired session if
// the session expires before the reply to the create.
func TestWriter_IgnoresRecordOfExpiredSession(t *testing.T) {
	run(t, func(h *writerTest) {
		h.Server.After(zktest.Match{Op: zktest.OpMulti, Nth: 2}, func(q *zktest.Request) zktest.Verdict {
			_ = h.Server.ExpireSession(q.Session)
			return zktest.Cut(q)
		})
		session := h.apply(createItem()).Session
		require.Equal(h, h.Conn.SessionID(), session)
		require.Equal(h, 1, h.countItems())
		require.NoError(h, h.w.Close())
		require.Zero(h, h.countZnodes("client-"))
	})
}

// TestWriter_ReplacesRecordBeforeVersionOverflow checks that the writer replaces its record long before the version
// of the record becomes -1, which would match any version.
// Scenario 33 of docs/traps.md.
func TestWriter_ReplacesRecordBeforeVersionOverflow(t *testing.T) {
	defer func(n int32) { maxVersion = n }(maxVersion)
	maxVersion = 4
	runWithRecord(t, func(h *writerTest) {
		records := map[string]bool{}
		for range 10 {
			o := h.apply(createItem())
			records[o.Record] = true
			_, stat, err := h.Conn.Get(o.Record)
			require.NoError(h, err)
			require.LessOrEqual(h, stat.Version, maxVersion)
		}
		require.Greater(h, len(records), 2)
		require.Equal(h, 1, h.countZnodes("client-"), "%s", h.Server.Tree())
		require.Equal(h, 10, h.countItems())
	})
}

// createN creates the directory of the shared writer.
var createN = Transaction{CreatesDir: true, Ops: []any{&zk.CreateRequest{Path: "/n", Acl: openACL}}}

// setN returns a transaction that changes the data of the directory, at the given version. The version shows how
// often the servers have applied such a transaction.
func setN(version int32) Transaction {
	return Transaction{Alone: true, Ops: []any{&zk.SetDataRequest{Path: "/n", Data: []byte("x"), Version: version}}}
}

func (h *writerTest) versionOfN() int32 {
	_, stat, err := h.Conn.Get("/n")
	require.NoError(h, err)
	return stat.Version
}

// TestCreatesDir_CreatesDirAndRecordInOneRequest checks that one request creates the directory and the record, and
// that each later transaction is one request.
func TestCreatesDir_CreatesDirAndRecordInOneRequest(t *testing.T) {
	runShared(t, func(h *writerTest) {
		require.ErrorIs(h, h.w.Start(Transaction{}).Outcome().Err, zk.ErrNoNode, "the writer has created the directory")
		h.Server.ResetLog()
		created := h.apply(createN)
		require.Len(h, h.Server.Log(), 1)
		_, stat, err := h.Conn.Get("/n")
		require.NoError(h, err)
		require.Equal(h, stat.Czxid, created.Zxid)
		for version := range int32(5) {
			h.Server.ResetLog()
			o := h.apply(setN(version))
			require.Len(h, h.Server.Log(), 1)
			require.Equal(h, created.Record, o.Record)
		}
		children, _, err := h.Conn.Children("/n")
		require.NoError(h, err)
		require.Len(h, children, 1)
		require.True(h, strings.HasPrefix(children[0], sharedPrefix))
		o := h.w.Start(createN).Outcome()
		require.ErrorIs(h, o.Err, zk.ErrNodeExists)
		require.Zero(h, o.Failed)
	})
}

// TestCreatesDir_FailsIfDirExists checks that a transaction with CreatesDir fails if the directory exists, also if
// the first request was lost.
func TestCreatesDir_FailsIfDirExists(t *testing.T) {
	runShared(t, func(h *writerTest) {
		_, err := h.Conn.Create("/n", nil, 0, openACL)
		require.NoError(h, err)
		for range 2 {
			o := h.w.Start(createN).Outcome()
			require.ErrorIs(h, o.Err, zk.ErrNodeExists)
			require.Zero(h, o.Failed)
			require.Empty(h, h.w.RecordOf(h.Conn.SessionID()))
			h.Server.Before(firstMulti, zktest.Cut)
		}
	})
}

// TestCreatesDir_AppliedOnceIfMessagesAreLost checks that the writer finds out that its transaction has created the
// directory if a request or a reply is lost.
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
			runShared(t, func(h *writerTest) {
				fault(h.Server)
				o := h.apply(createN)
				_, stat, err := h.Conn.Get("/n")
				require.NoError(h, err)
				require.Equal(h, stat.Czxid, o.Zxid)
				require.Equal(h, h.Conn.SessionID(), o.Session)
				h.apply(setN(0))
			})
		})
	}
}

// TestCreatesDir_OutcomeIsUnknownIfSessionExpires checks that a transaction with CreatesDir returns ErrUnknown if
// the session expires before the reply: the servers have then deleted the record, so the writer cannot read it.
func TestCreatesDir_OutcomeIsUnknownIfSessionExpires(t *testing.T) {
	runShared(t, func(h *writerTest) {
		h.Server.After(firstMulti, func(q *zktest.Request) zktest.Verdict {
			require.NoError(h, h.Server.ExpireSession(h.Conn.SessionID()))
			return zktest.Cut(q)
		})
		require.ErrorIs(h, h.w.Start(createN).Outcome().Err, ErrUnknown)
		require.Zero(h, h.versionOfN())
		h.apply(setN(0))
	})
}
