package queue

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestItem_AppliesTransactionOnlyWhileClaimed checks that a transaction of an item is applied only while the
// claim is valid, and exactly once.
func TestItem_AppliesTransactionOnlyWhileClaimed(t *testing.T) {
	run(t, func(h *bubble.Test) {
		q := newQueue(h)
		putItems(h, q, "one")
		item := takeItem(h, q, "one")
		_, err := item.Multi()
		require.NoError(h, err)
		responses, err := item.Multi(&zk.CreateRequest{Path: "/written", Acl: q.acl})
		require.NoError(h, err)
		require.Len(h, responses, 1)
		require.Equal(h, "/written", responses[0].String)
		_, err = item.Multi(&zk.CreateRequest{Path: "/written", Acl: q.acl})
		require.ErrorIs(h, err, zk.ErrNodeExists)
		require.NoError(h, item.Err())

		h.Server.After(nthRequest(q.conn, zktest.OpMulti, 1), zktest.Cut)
		responses, err = item.Multi(&zk.CreateRequest{Path: "/written/more", Acl: q.acl})
		require.NoError(h, err, "the record shows that the transaction was applied")
		require.Nil(h, responses)
		require.Equal(h, 1, strings.Count(h.Server.Tree(), "more"))

		require.NoError(h, h.Connect().Delete(q.claimPath(item.ID()), -1))
		_, err = item.Multi(&zk.DeleteRequest{Path: "/written/more", Version: -1})
		require.ErrorIs(h, err, recipes.ErrNotHeld)
		require.ErrorIs(h, item.Ack(), recipes.ErrNotHeld)
		_, err = item.Multi()
		require.ErrorIs(h, err, recipes.ErrNotHeld)
		require.Contains(h, h.Server.Tree(), "more")
	})
}
