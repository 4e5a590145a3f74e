package txn

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sessionTimeout = 4 * time.Second

var (
	openACL = zk.WorldACL(zk.PermAll)
	discard = slog.New(slog.DiscardHandler)
)

// harness is a server, a connection and a Writer in a bubble with fake time.
type harness struct {
	*testing.T
	srv  *zktest.Server
	conn *zk.Conn
	w    *Writer
}

// run runs f with a writer whose directory does not exist.
func run(t *testing.T, f func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, srv: zktest.Start(t)}
		h.conn = h.connect()
		h.w = New(Config{
			Conn: h.conn, Dir: "/records", ACL: openACL, Log: discard,
			MakeDir: func(ctx context.Context) error { return connection.MakeZnode(ctx, h.conn, "/records", openACL, true) },
		})
		f(h)
	})
}

// runWithRecord runs f with a writer that has a record, closes the writer, and requires that no
// record remains.
func runWithRecord(t *testing.T, f func(h *harness)) {
	run(t, func(h *harness) {
		require.NoError(h, h.w.Start(Transaction{}).Outcome().Err)
		f(h)
		h.close()
		require.NoError(h, h.w.CloseErr())
		require.Zero(h, h.count("client-"), "%s", h.srv.Tree())
		require.ErrorIs(h, h.w.Start(createItem()).Outcome().Err, ErrClosed)
	})
}

// runShared runs f with the shared writer of the directory /n, which does not exist.
func runShared(t *testing.T, f func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, srv: zktest.Start(t)}
		h.conn = h.connect()
		cfg := Config{Conn: h.conn, Dir: "/n", ACL: openACL, Log: discard}
		h.w = Shared(cfg)
		require.Same(t, h.w, Shared(cfg))
		require.Nil(t, h.w.cfg.Conn, "the writer keeps its connection in memory")
		f(h)
	})
}

func (h *harness) connect() *zk.Conn { return bubble.Connect(h, h.srv, sessionTimeout) }

// apply applies a transaction and requires that it succeeds.
func (h *harness) apply(t Transaction) Outcome {
	h.Helper()
	o := h.w.Start(t).Outcome()
	require.NoError(h, o.Err)
	return o
}

func (h *harness) close() {
	h.w.Close()
	<-h.w.Closed()
}

// count returns how many znodes have a name with a prefix.
func (h *harness) count(prefix string) int { return strings.Count(h.srv.Tree(), " "+prefix) }

// items returns how often transactions of createItem were applied.
func (h *harness) items() int { return h.count("item-") }

// createItem is a transaction whose repeated application would create a second znode.
func createItem() Transaction {
	return Transaction{Ops: []any{&zk.CreateRequest{Path: "/item-", Acl: openACL, Flags: zk.FlagSequence}}}
}

// firstMulti matches the next transaction.
var firstMulti = zktest.Match{Op: zktest.OpMulti, Nth: 1}
