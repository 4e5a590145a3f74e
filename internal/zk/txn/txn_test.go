package txn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWriter_ReturnsZxidSessionAndRecord checks that the outcome contains the zxid and the session of the
// transaction, and the path of the record.
func TestWriter_ReturnsZxidSessionAndRecord(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		o := h.apply(createItem())
		require.Equal(h, "/item-0000000001", o.Responses[0].String)
		require.Equal(h, h.Conn.SessionID(), o.Session)
		_, stat, err := h.Conn.Get("/item-0000000001")
		require.NoError(h, err)
		require.Equal(h, stat.Czxid, o.Zxid)
		_, stat, err = h.Conn.Get(o.Record)
		require.NoError(h, err)
		require.Equal(h, o.Session, stat.EphemeralOwner)
	})
}

// TestWriter_CallsShareRequests checks that calls that are started while a request is in flight share the next
// request, and that each call receives its own responses.
func TestWriter_CallsShareRequests(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.ResetLog()
		h.Server.Delay(zktest.ToClient, time.Millisecond)
		var calls []*Call
		for range 50 {
			calls = append(calls, h.w.Start(createItem()))
		}
		created := map[string]bool{}
		for _, c := range calls {
			o := c.Outcome()
			require.NoError(h, o.Err)
			require.Len(h, o.Responses, 1)
			created[o.Responses[0].String] = true
		}
		require.Len(h, created, 50)
		require.LessOrEqual(h, h.Server.Log().Count(zktest.OpMulti), 2)
	})
}

// TestWriter_AloneSharesNoRequest checks that the writer does not send a transaction with Alone together with other
// transactions, whose failure would delay it.
func TestWriter_AloneSharesNoRequest(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.ResetLog()
		h.Server.Delay(zktest.ToClient, time.Millisecond)
		first := h.w.Start(createItem())
		synctest.Wait()
		alone := createItem()
		alone.Alone = true
		calls := []*Call{first, h.w.Start(createItem()), h.w.Start(alone), h.w.Start(createItem()), h.w.Start(createItem())}
		for _, c := range calls {
			require.NoError(h, c.Outcome().Err)
		}
		require.Equal(h, 4, h.Server.Log().Count(zktest.OpMulti), "%v", h.Server.Log())
	})
}

// TestWriter_WithdrawRemovesUnsentCalls checks that Withdraw removes calls that the writer has not sent yet, and no
// other calls.
func TestWriter_WithdrawRemovesUnsentCalls(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.Delay(zktest.ToClient, time.Second)
		first := h.w.Start(createItem())
		synctest.Wait()
		second, third := h.w.Start(createItem()), h.w.Start(createItem())
		require.False(h, h.w.Withdraw(first), "a call in flight was withdrawn")
		require.True(h, h.w.Withdraw(second))
		require.False(h, h.w.Withdraw(second))
		require.NoError(h, first.Outcome().Err)
		require.NoError(h, third.Outcome().Err)
		require.Equal(h, 2, h.countItems())
	})
}

// TestWriter_RunReturnsWhenContextIsDone checks that Run returns when its context is done, and returns ErrUnknown
// only if the writer may have sent the transaction before.
func TestWriter_RunReturnsWhenContextIsDone(t *testing.T) {
	runShared(t, func(h *writerTest) {
		h.apply(createN)
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		h.Server.Pause()
		_, err := h.w.Run(ctx, setN(0))
		require.ErrorIs(h, err, context.DeadlineExceeded)
		require.ErrorIs(h, err, ErrUnknown)
		_, err = h.w.Run(ctx, setN(0))
		require.ErrorIs(h, err, context.DeadlineExceeded)
		require.NotErrorIs(h, err, ErrUnknown, "nothing was sent")
		queued, cancelQueued := context.WithCancel(h.Context())
		result := make(chan error)
		go func() {
			_, err := h.w.Run(queued, setN(0)) // is not sent, because it waits for the first transaction
			result <- err
		}()
		synctest.Wait()
		cancelQueued()
		err = <-result
		require.ErrorIs(h, err, context.Canceled)
		require.NotErrorIs(h, err, ErrUnknown, "nothing was sent")
		h.Server.Resume()
		synctest.Wait()
		require.EqualValues(h, 1, h.versionOfN())
		_, err = h.w.Run(h.Context(), setN(1))
		require.NoError(h, err)
	})
}

// TestWriter_ConfirmRetriesUnknownOutcome checks that Confirm repeats its empty transaction if the outcome is
// unknown, because a repeated empty transaction does no harm.
func TestWriter_ConfirmRetriesUnknownOutcome(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.After(firstMulti, func(q *zktest.Request) zktest.Verdict {
			_ = h.Server.ExpireSession(q.Session)
			return zktest.Cut(q)
		})
		o, err := h.w.Confirm(h.Context())
		require.NoError(h, err)
		require.Equal(h, h.Conn.SessionID(), o.Session)

		h.Server.Pause()
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		_, err = h.w.Confirm(ctx)
		require.ErrorIs(h, err, context.DeadlineExceeded)
		require.NotErrorIs(h, err, ErrUnknown)
		h.Server.Resume()
	})
}

// TestWriter_CallsFailAfterConnectionIsClosed checks that after the owner has closed the connection, calls that
// were sent have an unknown outcome, and all other calls fail with ErrConnClosed.
func TestWriter_CallsFailAfterConnectionIsClosed(t *testing.T) {
	run(t, func(h *writerTest) {
		h.apply(createItem())
		h.Server.Delay(zktest.ToClient, 100*time.Millisecond)
		sent := h.w.Start(createItem())
		synctest.Wait()
		queued := h.w.Start(createItem())
		h.Conn.Close()
		require.ErrorIs(h, sent.Outcome().Err, ErrUnknown)
		require.ErrorIs(h, sent.Outcome().Err, connection.ErrConnClosed)
		require.ErrorIs(h, queued.Outcome().Err, connection.ErrConnClosed)
		require.NotErrorIs(h, queued.Outcome().Err, ErrUnknown)
		require.ErrorIs(h, h.w.Start(createItem()).Outcome().Err, connection.ErrConnClosed)
		_, err := h.w.Confirm(h.Context())
		require.ErrorIs(h, err, connection.ErrConnClosed)
		require.ErrorIs(h, h.w.Close(), connection.ErrConnClosed)
	})
}

// TestWriter_CloseWaitsForPendingCalls checks that Close waits until the pending calls are applied and the record
// is deleted, even if no server answers for a while.
func TestWriter_CloseWaitsForPendingCalls(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.Refuse(true)
		h.Server.DropConnections()
		synctest.Wait()
		call := h.w.Start(createItem())
		closed, again := bubble.Async(h.w.Close), bubble.Async(h.w.Close)
		time.Sleep(time.Second)
		select {
		case <-closed:
			h.Fatal("closed although no server has answered")
		default:
		}
		h.Server.Refuse(false)
		require.NoError(h, call.Outcome().Err)
		require.NoError(h, <-closed)
		require.NoError(h, <-again)
	})
}

// TestWriter_ReturnsErrorOfRecordCreation checks that calls return the error of the server if the writer cannot
// create its record.
func TestWriter_ReturnsErrorOfRecordCreation(t *testing.T) {
	run(t, func(h *writerTest) {
		_, err := h.Conn.Create("/records", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(h, err)
		require.ErrorIs(h, h.w.Start(createItem()).Outcome().Err, zk.ErrNoAuth)
		require.Zero(h, h.countItems())
	})
}

// TestWriter_RejectsInvalidTransactions checks that the writer does not send transactions that are too large or
// contain anything but operations.
func TestWriter_RejectsInvalidTransactions(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.ResetLog()
		create := &zk.CreateRequest{Path: "/n", Data: make([]byte, maxBytes), Acl: openACL}
		large := Transaction{Ops: []any{create}}
		require.ErrorIs(h, h.w.Start(large).Outcome().Err, connection.ErrTooLarge)
		require.ErrorIs(h, h.w.Start(Transaction{Ops: []any{42}}).Outcome().Err, connection.ErrInvalid)
		require.Empty(h, h.Server.Log().Requests())

		create.Data = make([]byte, maxBytes-100)
		h.apply(large)
	})
}
