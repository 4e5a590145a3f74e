package txn

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A server may read a request after the client has reconnected and read the record. The request
// must fail then. Another client sends it here.
func TestRecord_LateRequestFails(t *testing.T) {
	runWithRecord(t, func(h *harness) {
		path := h.apply(Transaction{}).Record
		data, stat, err := h.conn.Get(path)
		require.NoError(h, err)
		id, err := strconv.Atoi(string(data))
		require.NoError(h, err)
		operator := h.connect()
		write := &zk.SetDataRequest{Path: path, Data: strconv.AppendInt(nil, int64(id+1), 10), Version: stat.Version}
		late := append([]any{write}, createItem().Ops...)

		h.srv.Before(firstMulti, zktest.Cut)
		hook := h.srv.After(zktest.Match{Op: zktest.OpSetData, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_, err := operator.Multi(late...)
			require.ErrorIs(h, err, zk.ErrBadVersion)
			return zktest.Pass(q)
		})
		h.apply(createItem())
		require.True(h, bubble.HasRun(hook), "the writer has not written another ID")
		require.Equal(h, 1, h.items(), "%s", h.srv.Tree())
	})
}

// A server that rejects the write of another ID because it is overloaded must not receive it
// again and again without a pause.
func TestRecord_PausesIfServerIsBusy(t *testing.T) {
	runWithRecord(t, func(h *harness) {
		begin, tries := time.Now(), 0
		h.srv.Before(firstMulti, zktest.Cut)
		h.srv.Before(zktest.Match{Op: zktest.OpSetData}, func(q *zktest.Request) zktest.Verdict {
			if tries++; time.Since(begin) < 2*time.Second && tries < 1000 {
				return zktest.Fail(zktest.Code(-127))(q) // throttled
			}
			return zktest.Pass(q)
		})
		h.apply(createItem())
		require.Greater(h, tries, 1)
		require.Less(h, tries, 50)
	})
}

// If the record was deleted, the writer creates another record.
func TestRecord_CreatedAgain(t *testing.T) {
	runWithRecord(t, func(h *harness) {
		require.NoError(h, h.conn.Delete(h.w.Record(), -1))
		h.apply(createItem())
		require.Equal(h, 1, h.items())
	})
}

// If the create of the record, or its reply, is lost, the writer creates one record and not two.
func TestRecord_CreatedOnceIfMessagesAreLost(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"reply": (*zktest.Server).After, "request": (*zktest.Server).Before,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				// The first request fails, because the directory does not exist.
				hook(h.srv, zktest.Match{Op: zktest.OpMulti, Nth: 2}, zktest.Cut)
				h.apply(createItem())
				require.Equal(h, 1, h.count("client-"), "%s", h.srv.Tree())
				h.close()
				require.Zero(h, h.count("client-"))
			})
		})
	}
}

// If the session expires with the reply to the create, the record of the expired session must not
// be used.
func TestRecord_CreatedInExpiredSession(t *testing.T) {
	run(t, func(h *harness) {
		h.srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 2}, func(q *zktest.Request) zktest.Verdict {
			_ = h.srv.ExpireSession(q.Session)
			return zktest.Cut(q)
		})
		session := h.apply(createItem()).Session
		require.Equal(h, h.conn.SessionID(), session)
		require.Equal(h, 1, h.items())
		h.close()
		require.NoError(h, h.w.CloseErr())
		require.Zero(h, h.count("client-"))
	})
}

// A record is replaced long before its version is -1, which would match any version.
func TestTrap33_DataVersionOverflow(t *testing.T) {
	defer func(n int32) { maxVersion = n }(maxVersion)
	maxVersion = 4
	runWithRecord(t, func(h *harness) {
		records := map[string]bool{}
		for range 10 {
			o := h.apply(createItem())
			records[o.Record] = true
			_, stat, err := h.conn.Get(o.Record)
			require.NoError(h, err)
			require.LessOrEqual(h, stat.Version, maxVersion)
		}
		require.Greater(h, len(records), 2)
		require.Equal(h, 1, h.count("client-"), "%s", h.srv.Tree())
		require.Equal(h, 10, h.items())
	})
}
