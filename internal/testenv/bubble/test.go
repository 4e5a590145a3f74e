package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// SessionTimeout is the session timeout of the clients of a [Test].
const SessionTimeout = 4 * time.Second

// Test is a test in a bubble with a server.
type Test struct {
	*testing.T
	Server *zktest.Server
	// Conn is the connection under test, and Operator the connection of another program. Both are nil unless
	// the test sets them.
	Conn, Operator *zk.Conn
}

// Run runs f in a bubble with a server.
func Run(t *testing.T, f func(t *Test), options ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&Test{T: t, Server: zktest.Start(t, options...)}) })
}

// Connect opens a session as the function [Connect] does, with [SessionTimeout].
func (t *Test) Connect(options ...func(*zk.Conn)) *zk.Conn {
	t.Helper()
	return Connect(t, t.Server, SessionTimeout, options...)
}
