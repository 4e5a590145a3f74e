package barrier

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node    = "/app/gate"
	timeout = bubble.SessionTimeout
)

var openACL = zk.WorldACL(zk.PermAll)

var sessionTimeoutOption = recipes.WithSessionTimeout(timeout)

func newBarrier(w *bubble.Test, conn *zk.Conn) *Barrier {
	b, err := New(conn, node, sessionTimeoutOption)
	require.NoError(w, err)
	return b
}

func newDouble(w *bubble.Test, conn *zk.Conn, n int) *Double {
	d, err := NewDouble(conn, node, n, sessionTimeoutOption)
	require.NoError(w, err)
	return d
}
