package group

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
	dir     = "/app/workers"
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

func (w world) group(conn *zk.Conn, opts ...recipes.Option) *Group {
	g, err := NewGroup(conn, dir, append(opts, granted)...)
	require.NoError(w, err)
	return g
}

func (w world) join(conn *zk.Conn, id, data string) *Membership {
	m, err := w.group(conn).Join(w.Context(), id, []byte(data))
	require.NoError(w, err)
	return m
}

func (w world) keep(conn *zk.Conn) *Persistent {
	p, err := Keep(conn, dir+"/one", []byte("data"), granted)
	require.NoError(w, err)
	return p
}

// data reads a znode.
func (w world) data(conn *zk.Conn, node string) string {
	data, _, err := conn.Get(node)
	require.NoError(w, err)
	return string(data)
}
