package txn

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sessionTimeout = bubble.SessionTimeout

var (
	openACL = zk.WorldACL(zk.PermAll)
	discard = slog.New(slog.DiscardHandler)
)

// writerTest is a test of a Writer in a bubble with a server.
type writerTest struct {
	*bubble.Test
	w *Writer
}

// run runs f with a writer whose directory does not exist.
func run(t *testing.T, f func(h *writerTest)) {
	bubble.Run(t, func(t *bubble.Test) {
		t.Conn = t.Connect()
		f(&writerTest{t, New(Config{
			Options: connection.Options{Conn: t.Conn, ACL: openACL, Log: discard}, Dir: "/records",
			MakeDir: func(ctx context.Context) error { return connection.MakeZnode(ctx, t.Conn, "/records", openACL, true) },
		})})
	})
}

// runWithRecord runs f with a writer that has created a record, closes the writer, and requires that no record
// remains.
func runWithRecord(t *testing.T, f func(h *writerTest)) {
	run(t, func(h *writerTest) {
		require.NoError(h, h.w.Start(Transaction{}).Outcome().Err)
		f(h)
		require.NoError(h, h.w.Close())
		require.Zero(h, h.countZnodes("client-"), "%s", h.Server.Tree())
		require.ErrorIs(h, h.w.Start(createItem()).Outcome().Err, ErrClosed)
	})
}

// runShared runs f with the shared writer of the directory /n. The directory does not exist.
func runShared(t *testing.T, f func(h *writerTest)) {
	bubble.Run(t, func(t *bubble.Test) {
		t.Conn = t.Connect()
		cfg := Config{Options: connection.Options{Conn: t.Conn, ACL: openACL, Log: discard}, Dir: "/n"}
		w := Shared(cfg)
		require.Same(t, w, Shared(cfg))
		require.Nil(t, w.cfg.Conn, "the writer keeps its connection in memory")
		f(&writerTest{t, w})
	})
}

// apply applies a transaction and requires that it succeeds.
func (h *writerTest) apply(t Transaction) Outcome {
	h.Helper()
	o := h.w.Start(t).Outcome()
	require.NoError(h, o.Err)
	return o
}

// countZnodes returns the number of znodes whose names begin with prefix.
func (h *writerTest) countZnodes(prefix string) int {
	return strings.Count(h.Server.Tree(), " "+prefix)
}

// countItems returns how often the servers have applied a transaction of createItem.
func (h *writerTest) countItems() int { return h.countZnodes("item-") }

// createItem returns a transaction that creates another znode each time the servers apply it.
func createItem() Transaction {
	return Transaction{Ops: []any{&zk.CreateRequest{Path: "/item-", Acl: openACL, Flags: zk.FlagSequence}}}
}

// firstMulti matches the next transaction that the server receives.
var firstMulti = zktest.Match{Op: zktest.OpMulti, Nth: 1}
