package value

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the path of values and counters, unless a test uses another path.
const node = "/app/count"

var openACL = zk.WorldACL(zk.PermAll)

// newValue returns a value in JSON.
func newValue[T any](h *bubble.Test, conn *zk.Conn, path string) *Value[T] {
	v, err := New(conn, path, recipes.JSONCodec[T](), recipes.WithSessionTimeout(bubble.SessionTimeout))
	require.NoError(h, err)
	return v
}

// newCounter returns a counter at node with a separate connection.
func newCounter(h *bubble.Test) *Counter { return counterOn(h, h.Connect()) }

func counterOn(h *bubble.Test, conn *zk.Conn) *Counter {
	c, err := NewCounter(conn, node, recipes.WithSessionTimeout(bubble.SessionTimeout))
	require.NoError(h, err)
	return c
}

// addTo adds delta to the counter and returns the sum.
func addTo(h *bubble.Test, c *Counter, delta int64) int64 {
	h.Helper()
	n, err := c.Add(h.Context(), delta)
	require.NoError(h, err)
	return n
}

func get(h *bubble.Test, c *Counter) int64 {
	h.Helper()
	n, err := c.Get(h.Context())
	require.NoError(h, err)
	return n
}

func create(h *bubble.Test, conn *zk.Conn, path, data string) {
	h.Helper()
	_, err := conn.Create(path, []byte(data), 0, openACL)
	require.NoError(h, err)
}

// countRecords returns the number of records of sessions below all znodes.
func countRecords(h *bubble.Test) int { return strings.Count(h.Server.Tree(), "_r_") }
