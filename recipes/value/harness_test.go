package value

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/codec"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node           = "/app/value"
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

// newValue returns a value in JSON.
func newValue[T any](h *harness, conn *zk.Conn, path string) *Value[T] {
	v, err := New(conn, path, codec.JSON[T](), recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(h, err)
	return v
}
