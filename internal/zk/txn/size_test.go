package txn

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Transactions that are too large, or contain anything but operations, are not sent.
func TestWriter_RejectsInvalidTransactions(t *testing.T) {
	runWithRecord(t, func(h *harness) {
		h.srv.ResetLog()
		create := &zk.CreateRequest{Path: "/n", Data: make([]byte, maxBytes), Acl: openACL}
		large := Transaction{Ops: []any{create}}
		require.ErrorIs(h, h.w.Start(large).Outcome().Err, ErrTooLarge)
		require.ErrorIs(h, h.w.Start(Transaction{Ops: []any{42}}).Outcome().Err, ErrOperation)
		require.Empty(h, h.srv.Log().Requests())

		create.Data = make([]byte, maxBytes-100)
		h.apply(large)
	})
}
