package group

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
	dir     = "/app/workers"
	timeout = bubble.SessionTimeout
)

var openACL = zk.WorldACL(zk.PermAll)

var sessionTimeoutOption = recipes.WithSessionTimeout(timeout)

func newGroup(w *bubble.Test, conn *zk.Conn, opts ...Option) *Group {
	g, err := New(conn, dir, append(opts, sessionTimeoutOption)...)
	require.NoError(w, err)
	return g
}

func join(w *bubble.Test, conn *zk.Conn, id, data string) *Membership {
	m, err := newGroup(w, conn).Join(w.Context(), id, []byte(data))
	require.NoError(w, err)
	return m
}

func openPersistent(w *bubble.Test, conn *zk.Conn) *Persistent {
	p, err := NewPersistent(conn, dir+"/one", []byte("data"), sessionTimeoutOption)
	require.NoError(w, err)
	return p
}

// openPresentPersistent calls openPersistent, and waits until the znode exists.
func openPresentPersistent(w *bubble.Test, conn *zk.Conn) *Persistent {
	w.Helper()
	p := openPersistent(w, conn)
	require.NoError(w, p.Await(w.Context()))
	return p
}

// dataOf returns the data of a znode.
func dataOf(w *bubble.Test, conn *zk.Conn, node string) string {
	data, _, err := conn.Get(node)
	require.NoError(w, err)
	return string(data)
}
