package counter

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/codec"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node           = "/app/count"
	sessionTimeout = 4 * time.Second
)

var openACL = zk.WorldACL(zk.PermAll)

// harness is a server in a bubble with fake time.
type harness struct {
	*testing.T
	srv *zktest.Server
}

func run(t *testing.T, f func(h *harness)) {
	synctest.Test(t, func(t *testing.T) { f(&harness{T: t, srv: zktest.Start(t)}) })
}

func (h *harness) connect(opts ...func(*zk.Conn)) *zk.Conn {
	return bubble.Connect(h, h.srv, sessionTimeout, opts...)
}

// counter returns a counter at node with a separate connection.
func (h *harness) counter() *Counter { return h.counterOn(h.connect()) }

func (h *harness) counterOn(conn *zk.Conn) *Counter {
	c, err := New(conn, node, recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(h, err)
	return c
}

// newValue returns a value in JSON.
func newValue[T any](h *harness, conn *zk.Conn, path string) *value.Value[T] {
	v, err := value.New(conn, path, codec.JSON[T](), recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(h, err)
	return v
}

// add adds delta and returns the sum.
func (h *harness) add(c *Counter, delta int64) int64 {
	h.Helper()
	n, err := c.Add(h.Context(), delta)
	require.NoError(h, err)
	return n
}

func (h *harness) get(c *Counter) int64 {
	h.Helper()
	n, err := c.Get(h.Context())
	require.NoError(h, err)
	return n
}

func (h *harness) create(conn *zk.Conn, path, data string) {
	h.Helper()
	_, err := conn.Create(path, []byte(data), 0, openACL)
	require.NoError(h, err)
}

// records returns how many sessions have a record below any znode.
func (h *harness) records() int { return strings.Count(h.srv.Tree(), "_r_") }
