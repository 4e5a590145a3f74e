// Package bubble contains helpers for tests with [zktest] servers and clients in bubbles of [synctest], where time
// is fake: they connect and disconnect clients, lose replies, let time pass, count watches, and wait for hooks.
package bubble

import (
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Margin is enough time for several requests if the servers have no latency. Margin is not a multiple of the
// intervals between checks and retries, so that no timer fires when a wait for Margin is over.
const Margin = 10 * time.Millisecond

// bufferSize limits the length of replies. Without a limit, the client library allocates and clears a buffer of 1.5
// MB for each connection.
const bufferSize = 64 << 10

// Connect opens a session at a server, and waits until the session is established. Replies are limited to 64 KiB
// unless an option sets another limit; 0 means no limit.
func Connect(t testing.TB, srv *zktest.Server, timeout time.Duration, options ...func(*zk.Conn)) *zk.Conn {
	t.Helper()
	conn, _, err := srv.Connect(timeout, withBuffer(options)...)
	return awaitSession(t, conn, err)
}

// ConnectFrom opens a session at an ensemble as Connect does. The client first connects to the server with the
// number server.
func ConnectFrom(t testing.TB, e *zktest.Ensemble, server int, timeout time.Duration, options ...func(*zk.Conn)) *zk.Conn {
	t.Helper()
	conn, _, err := e.ConnectFrom(server, timeout, withBuffer(options)...)
	return awaitSession(t, conn, err)
}

func withBuffer(options []func(*zk.Conn)) []func(*zk.Conn) {
	return slices.Concat([]func(*zk.Conn){zk.WithMaxBufferSize(bufferSize)}, options)
}

func awaitSession(t testing.TB, conn *zk.Conn, err error) *zk.Conn {
	t.Helper()
	require.NoError(t, err)
	synctest.Wait()
	require.Equal(t, zk.StateHasSession, conn.State())
	return conn
}

// Advance lets time pass, and then waits until all other goroutines of the bubble are blocked.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Settle lets 30 seconds of fake time pass, so that everything in progress ends. The additional millisecond keeps the
// wait from ending at an instant at which a check of a lease is sent: the client library can hang if the connection
// is closed while a request is in flight.
func Settle() { Advance(30*time.Second + time.Millisecond) }

// EachServer calls f for each server of an ensemble.
func EachServer(e *zktest.Ensemble, f func(*zktest.Server)) {
	for i := range e.Len() {
		f(e.Server(i))
	}
}

// Disconnect breaks the connection of a client. No client can connect until Reconnect is called.
func Disconnect(e *zktest.Ensemble, conn *zk.Conn) {
	session := conn.SessionID()
	EachServer(e, func(s *zktest.Server) {
		s.Refuse(true)
		s.DropConnections(session)
	})
	Advance(0)
}

// Reconnect lets clients connect again, and waits until all of them are connected.
func Reconnect(e *zktest.Ensemble) {
	EachServer(e, func(s *zktest.Server) { s.Refuse(false) })
	Advance(time.Second + Margin) // the client library pauses for a second after it has tried all servers
}

// Session returns the session of a connection as the servers store it. The servers must not have expired the
// session.
func Session(t testing.TB, e *zktest.Ensemble, conn *zk.Conn) zktest.Session {
	t.Helper()
	all := e.Leader().Sessions()
	i := slices.IndexFunc(all, func(s zktest.Session) bool { return s.ID == conn.SessionID() })
	require.GreaterOrEqual(t, i, 0, "the servers have expired the session")
	return all[i]
}

// HasRun reports whether the server has called a hook for the request that the hook selects.
func HasRun(hook *zktest.Hook) bool {
	select {
	case <-hook.Ran():
		return true
	default:
		return false
	}
}

// RequireRun requires that the server has called each of the hooks for the request that the hook selects.
func RequireRun(t testing.TB, hooks ...*zktest.Hook) {
	t.Helper()
	for _, hook := range hooks {
		require.True(t, HasRun(hook), "no request has matched the hook")
	}
}

// Gate returns a channel on which hooks can wait, and a function that closes the channel. The channel is also
// closed when the test ends.
func Gate(t testing.TB) (wait <-chan struct{}, open func()) {
	c := make(chan struct{})
	open = sync.OnceFunc(func() { close(c) })
	t.Cleanup(open)
	return c, open
}

// Hold returns a hook that blocks requests until release is called. The test also calls release when it ends.
func Hold(t testing.TB) (hook zktest.HookFunc, release func()) {
	wait, release := Gate(t)
	return func(q *zktest.Request) zktest.Verdict {
		<-wait
		return zktest.Pass(q)
	}, release
}

// Created returns the paths of the children of dir that clients have created so far. If a transaction has created a
// sequential znode, the path lacks the sequence number.
func Created(srv *zktest.Server, dir string) (paths []string) {
	for _, e := range srv.Log() {
		switch {
		case strings.HasPrefix(e.Created, dir+"/"):
			paths = append(paths, e.Created)
		case e.Code == 0 && IsContenderCreate(e, dir):
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// IsContenderCreate reports whether an entry of the log is a transaction that creates the znode of a contender for
// a lock and also writes the znode of the queue.
func IsContenderCreate(e zktest.Entry, dir string) bool {
	return e.Op == zktest.OpMulti && e.Ops == 2 && strings.HasPrefix(e.Path, dir+"/") && strings.ContainsAny(e.Path[len(e.Path)-1:], "-_")
}

// Goroutines returns the number of goroutines in bubbles. It does not count other goroutines, such as those of the
// runtime, whose number changes.
func Goroutines() int {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			return strings.Count(string(stacks[:n]), ", synctest bubble ")
		}
		stacks = make([]byte, 2*len(stacks))
	}
}

// Async calls f, which may block, in a new goroutine. The channel receives the result of f.
func Async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// RequireDuration requires that f takes exactly the time want.
func RequireDuration(t testing.TB, want time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	require.Equal(t, want, time.Since(begin))
}

// RequireAuthentication makes a server treat clients that are not authenticated as with the setting
// enforce.auth.enabled: the server answers the first request of each connection with code -124, reads no other
// request, and closes the connection. end restores the normal behaviour.
func RequireAuthentication(srv *zktest.Server) (end func()) {
	var mu sync.Mutex
	answered := map[int64]bool{} // sessions on whose connection the server has answered a request
	hook := srv.Before(zktest.Match{}, func(q *zktest.Request) zktest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case q.Op == zktest.OpConnect:
			answered[q.Session] = false
			return zktest.Pass(q)
		case q.Op == zktest.OpCloseSession:
			return zktest.Pass(q)
		case answered[q.Session]:
			return zktest.Cut(q)
		}
		answered[q.Session] = true
		time.AfterFunc(time.Second, func() { srv.DropConnections(q.Session) })
		return zktest.Fail(zktest.Code(-124))(q)
	})
	return hook.Remove
}

// Fault is a fault of one request, after which the client does not know whether the server has applied the request.
type Fault struct {
	Name    string
	Applied bool // the server applies the request before the fault
	Silent  bool // the connection remains open, but no reply arrives
	// Set makes the server cause the fault at the first request that m matches.
	Set func(s *zktest.Server, m zktest.Match) *zktest.Hook
}

// ConnectionLost contains the faults in which a broken connection loses a request or its reply.
var ConnectionLost = []Fault{
	{"cut before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Cut)
	}},
	{"cut before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Cut)
	}},
	{"silence instead of the reply", true, true, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, func(q *zktest.Request) zktest.Verdict {
			q.Server.Blackhole(zktest.BothWays, q.Session)
			return zktest.Pass(q)
		})
	}},
}

// SessionMoved contains the faults in which the server replies that the session has moved to another server. The
// connection remains open.
var SessionMoved = []Fault{
	{"session moved before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Fail(zk.ErrSessionMoved))
	}},
	{"session moved before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Fail(zk.ErrSessionMoved))
	}},
}

// LostReplies contains the faults of ConnectionLost and of SessionMoved.
var LostReplies = slices.Concat(ConnectionLost, SessionMoved)

// Watches returns the number of channels that conn stores for watches that have not fired. Tests use it to find
// watches that are never removed. Because the client library has no method for this purpose, Watches reads its
// private fields. Watches may be called from any goroutine, also outside of bubbles.
func Watches(conn *zk.Conn) (n int) {
	fields := reflect.ValueOf(conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	for _, channels := range fields.FieldByName("watchers").Seq2() {
		n += channels.Len()
	}
	return n
}

// WatchClose returns a dialer that connects with dial. Its connections call closing before they write the packet
// with which the client library ends the session.
func WatchClose(dial zk.Dialer, closing func()) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &closeWatcher{conn, closing}, nil
	}
}

type closeWatcher struct {
	net.Conn
	closing func()
}

func (c *closeWatcher) Write(b []byte) (int, error) {
	const closeSession = -11
	if len(b) == 12 && int32(binary.BigEndian.Uint32(b[8:])) == closeSession {
		c.closing()
	}
	return c.Conn.Write(b)
}

// Repeated calls f again as long as f returns limit.ErrConfirm, because the servers have not answered. f is a call
// that releases, acknowledges or closes something. Repeated needs no pause between the calls, because each call waits
// for the servers.
func Repeated(f func() error) error {
	err := f()
	for errors.Is(err, limit.ErrConfirm) {
		err = f()
	}
	return err
}
