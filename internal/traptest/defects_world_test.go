package traptest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

var anybody = zk.WorldACL(zk.PermAll)

// heal ends all faults and has the clients find their servers again.
func (w *world) heal() {
	for i := range w.ensemble.Len() {
		w.ensemble.Server(i).Refuse(false)
		w.ensemble.Server(i).Heal()
	}
	time.Sleep(timeout)
}

// instant is when something happened.
type instant struct {
	mu sync.Mutex
	at time.Time
}

func (i *instant) now() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = time.Now()
}

func (i *instant) time() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at
}

// endOf notes when a leadership ends.
func endOf(l *leaderelection.Leadership) *instant {
	i := &instant{}
	context.AfterFunc(l.Context(), i.now)
	return i
}

// sessionEnd is when the server ended a session.
func (w *world) sessionEnd(session int64) time.Time {
	w.Helper()
	for _, e := range w.srv.Log() {
		if e.Op == zktest.OpCloseSession && e.Session == session {
			return e.Time
		}
	}
	require.Fail(w, "the session lives", "%#x", session)
	return time.Time{}
}

// sent are the requests of one kind in the log, of one session, or of all for 0.
func (w *world) sent(op zktest.Op, session int64) zktest.Log {
	return w.srv.Log().Filter(func(e zktest.Entry) bool {
		return e.Op == op && (session == 0 || e.Session == session)
	})
}

// line are the names of candidates as children of the election node.
func line(candidates ...*candidate) (names []string) {
	for _, c := range candidates {
		names = append(names, path.Base(c.ID()))
	}
	return names
}

// stands asserts that the election node has these children and no others.
func (w *world) stands(names ...string) {
	w.Helper()
	var there []string
	children, _, err := w.operator.Children(node)
	require.NoError(w, err)
	there = append(there, children...)
	require.ElementsMatch(w, names, there)
}

// isGone asserts that the election node does not exist.
func (w *world) isGone() {
	w.Helper()
	found, _, err := w.operator.Exists(node)
	require.NoError(w, err)
	require.False(w, found)
}

// roles are those of all statuses so far.
func (c *candidate) roles() (roles []leaderelection.Role) {
	for _, s := range c.all() {
		roles = append(roles, s.Role)
	}
	return roles
}

// when is the time of the first status with a role.
func (c *candidate) when(role leaderelection.Role) time.Time {
	c.w.Helper()
	for _, s := range c.all() {
		if s.Role == role {
			return s.at
		}
	}
	require.Fail(c.w, "no such status", "%v", role)
	return time.Time{}
}

// quiet asserts that the candidate gets no status while d passes.
func (c *candidate) quiet(d time.Duration) {
	c.w.Helper()
	before := len(c.all())
	c.w.pass(d)
	require.Len(c.w, c.all(), before, "%v", c.all())
}

// contender has the operator stand in line, as a program of another library
// would, and returns the path of its znode.
func (w *world) contender() string {
	w.Helper()
	id, err := w.operator.Create(path.Join(node, "latch-"), nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
	require.NoError(w, err)
	return id
}

// hold returns a hook that keeps what it meets until release is called.
func (w *world) hold() (hook zktest.HookFunc, release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	w.Cleanup(release)
	return func(q *zktest.Request) zktest.Verdict {
		<-gate
		return zktest.Pass(q)
	}, release
}

// away has something happen while a session has no connection: it breaks, and
// the next one, at another server, comes after that.
func (w *world) away(conn *zk.Conn, do func()) {
	session := conn.SessionID()
	back := w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		do()
		return zktest.Pass(q)
	})
	for i := range w.ensemble.Len() {
		w.ensemble.Server(i).DropConnections(session)
	}
	w.pass(0)
	<-back.Ran()
}

// narrow is a client's line over which packets come one at a time, with a pause
// in which the client deals with the last one. So the order in which a server
// tells of what happened at once is the order in which the client acts.
type narrow struct{ pause atomic.Int64 }

func (n *narrow) slow(pause time.Duration) { n.pause.Store(int64(pause)) }

// connectNarrow opens a session over a narrow line, which is not slow yet.
func (w *world) connectNarrow() (*zk.Conn, *narrow) {
	n := &narrow{}
	dial := w.ensemble.Dialer()
	return w.connect(zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &packets{Conn: conn, line: n}, nil
	})), n
}

// packets is one connection over a narrow line. Only its reader uses the rest.
type packets struct {
	net.Conn
	line *narrow
	head []byte // of a packet, not handed over yet
	left int    // of its body
}

func (p *packets) Read(b []byte) (int, error) {
	if len(p.head) == 0 && p.left == 0 {
		time.Sleep(time.Duration(p.line.pause.Load()))
		var head [4]byte
		if _, err := io.ReadFull(p.Conn, head[:]); err != nil {
			return 0, err
		}
		p.head, p.left = head[:], int(binary.BigEndian.Uint32(head[:]))
	}
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	n, err := p.Conn.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}
