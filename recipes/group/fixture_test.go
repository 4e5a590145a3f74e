package group

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
	dir     = "/app/workers"
	timeout = 4 * time.Second
)

var openACL = zk.WorldACL(zk.PermAll)

var sessionTimeoutOption = recipes.WithSessionTimeout(timeout)

// fixture is a test in a bubble with a server.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

func runTest(t *testing.T, f func(w fixture)) {
	synctest.Test(t, func(t *testing.T) { f(fixture{t, zktest.Start(t)}) })
}

func (w fixture) connect() *zk.Conn { return bubble.Connect(w, w.srv, timeout) }

func (w fixture) group(conn *zk.Conn, opts ...Option) *Group {
	g, err := New(conn, dir, append(opts, sessionTimeoutOption)...)
	require.NoError(w, err)
	return g
}

func (w fixture) join(conn *zk.Conn, id, data string) *Membership {
	m, err := w.group(conn).Join(w.Context(), id, []byte(data))
	require.NoError(w, err)
	return m
}

func (w fixture) keep(conn *zk.Conn) *Persistent {
	p, err := NewPersistent(conn, dir+"/one", []byte("data"), sessionTimeoutOption)
	require.NoError(w, err)
	return p
}

// keepPresent calls keep, and waits until the znode exists.
func (w fixture) keepPresent(conn *zk.Conn) *Persistent {
	w.Helper()
	p := w.keep(conn)
	require.NoError(w, p.Await(w.Context()))
	return p
}

// data returns the data of a znode.
func (w fixture) data(conn *zk.Conn, node string) string {
	data, _, err := conn.Get(node)
	require.NoError(w, err)
	return string(data)
}

// settle waits until everything in progress has ended.
func settle() {
	// Not at the times of the checks of sessions: a request in flight while the connection is
	// closed can hang the client library.
	time.Sleep(30*time.Second + time.Millisecond)
	synctest.Wait()
}
