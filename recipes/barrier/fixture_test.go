package barrier

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node    = "/app/gate"
	timeout = 4 * time.Second
)

var openACL = zk.WorldACL(zk.PermAll)

var granted = recipes.WithSessionTimeout(timeout)

// fixture is a test in a bubble with a server.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

func runTest(t *testing.T, f func(w fixture)) {
	synctest.Test(t, func(t *testing.T) { f(fixture{t, zktest.Start(t)}) })
}

func (w fixture) connect() *zk.Conn { return bubble.Connect(w, w.srv, timeout) }

func (w fixture) barrier(conn *zk.Conn) *Barrier {
	b, err := New(conn, node, granted)
	require.NoError(w, err)
	return b
}

func (w fixture) double(conn *zk.Conn, n int) *Double {
	d, err := NewDouble(conn, node, n, granted)
	require.NoError(w, err)
	return d
}
