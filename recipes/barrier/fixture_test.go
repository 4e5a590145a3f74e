package barrier

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/app/gate"
	timeout = 4 * time.Second
)

var granted = recipes.WithSessionTimeout(timeout)

// world is a test in a bubble with a server.
type world struct {
	*testing.T
	srv *zktest.Server
}

func play(t *testing.T, f func(w world)) {
	synctest.Test(t, func(t *testing.T) { f(world{t, zktest.Start(t)}) })
}

func (w world) connect() *zk.Conn {
	conn, _, err := w.srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(w, err)
	synctest.Wait()
	return conn
}

func (w world) barrier(conn *zk.Conn) *Barrier {
	b, err := NewBarrier(conn, node, granted)
	require.NoError(w, err)
	return b
}

func (w world) double(conn *zk.Conn, n int) *Double {
	d, err := NewDouble(conn, node, n, granted)
	require.NoError(w, err)
	return d
}
