package leaderelection_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/election"
	timeout = 4 * time.Second // session timeout of the clients

	// anyCandidate matches the paths of all candidates' znodes.
	anyCandidate = node + "/*"

	// shortTime is long enough for a candidate to find out why a znode was deleted. It is not a multiple of the
	// intervals between checks, so that no check is due when it has passed.
	shortTime = bubble.Margin
	// confirmLimit is how long Resign and EndElection wait for ZooKeeper.
	confirmLimit = 1500 * time.Millisecond
)

var openACL = zk.WorldACL(zk.PermAll)

// firstCreate matches the next create of a candidate in an election without candidates. This create writes
// the election node in the same transaction.
var firstCreate = zktest.Match{Op: zktest.OpMulti, Path: node, Nth: 1}

// harness is one test in a bubble of testing/synctest: servers and clients with fake time.
type harness struct {
	*testing.T
	ensemble   *zktest.Ensemble
	srv        *zktest.Server          // the first server of the ensemble
	operator   *zk.Conn                // a client that is not a candidate
	options    []leaderelection.Option // options of all candidates
	candidates []*candidate            // all candidates, to let them resign at the end
	terms      leadershipRecord
	contenders int // number of calls of createContender
}

// withServers runs f in a bubble with an ensemble and an election node. At the end it verifies
// that there were never two leaders.
func withServers(t *testing.T, servers int, f func(h *harness), options ...zktest.Option) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // lets requests without a reply end after Close
		h := &harness{T: t, ensemble: zktest.StartEnsemble(t, servers, options...)}
		h.srv = h.ensemble.Server(0)
		t.Cleanup(func() {
			h.heal()
			// Each candidate must resign before its client is closed. Otherwise a request in flight can block
			// forever, because the client library sends up to three replies to a channel of capacity two.
			for _, c := range h.candidates {
				go c.Resign()
			}
			time.Sleep(timeout)
		})
		h.operator = h.connect()
		h.create(node)
		f(h)
		h.terms.verify(h)
	})
}

// runWithServers runs withServers in a subtest.
func runWithServers(t *testing.T, name string, servers int, f func(h *harness), options ...zktest.Option) {
	t.Run(name, func(t *testing.T) { withServers(t, servers, f, options...) })
}

// heal ends all faults of the servers, and waits until the clients are connected.
func (h *harness) heal() {
	h.eachServer(func(s *zktest.Server) {
		s.Refuse(false)
		s.Heal()
	})
	time.Sleep(timeout)
}

// eachServer calls f for each server.
func (h *harness) eachServer(f func(*zktest.Server)) { bubble.EachServer(h.ensemble, f) }

// advance lets time pass, and then waits until all goroutines are blocked.
func (h *harness) advance(d time.Duration) { bubble.Advance(d) }

// connect opens a session at server 0.
func (h *harness) connect(options ...func(*zk.Conn)) *zk.Conn {
	return h.connectTo(0, options...)
}

func (h *harness) connectTo(server int, options ...func(*zk.Conn)) *zk.Conn {
	h.Helper()
	return bubble.ConnectFrom(h, h.ensemble, server, timeout, options...)
}

// connectUnlimited opens a session whose replies can have any length.
func (h *harness) connectUnlimited() *zk.Conn {
	h.Helper()
	return h.connect(zk.WithMaxBufferSize(0))
}

// disconnect breaks the connection of a client. No client can connect until reconnect is called.
func (h *harness) disconnect(conn *zk.Conn) { bubble.Disconnect(h.ensemble, conn) }

// reconnect lets clients connect again, and waits until all of them are connected.
func (h *harness) reconnect() { bubble.Reconnect(h.ensemble) }

// whileDisconnected breaks the connection of a client, and calls f before the client is connected again.
func (h *harness) whileDisconnected(conn *zk.Conn, f func()) {
	session := conn.SessionID()
	connecting := h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		f()
		return zktest.Pass(q)
	})
	h.eachServer(func(s *zktest.Server) { s.DropConnections(session) })
	h.advance(0)
	<-connecting.Ran()
}

// expire makes the session of a client expire.
func (h *harness) expire(conn *zk.Conn) {
	h.Helper()
	require.NoError(h, h.srv.ExpireSession(conn.SessionID()))
}

// serverSession returns the session of a candidate's connection as the servers store it.
func (h *harness) serverSession(c *candidate) zktest.Session {
	h.Helper()
	return bubble.Session(h, h.ensemble, c.conn)
}

// requests returns the logged requests of one kind that a session has sent. If session is 0, it returns the
// requests of all sessions.
func (h *harness) requests(op zktest.Op, session int64) zktest.Log {
	return h.srv.Log().Filter(func(e zktest.Entry) bool {
		return e.Op == op && (session == 0 || e.Session == session)
	})
}

// create creates a persistent znode.
func (h *harness) create(path string) {
	h.Helper()
	_, err := h.operator.Create(path, nil, 0, openACL)
	require.NoError(h, err)
}

// remove deletes a znode.
func (h *harness) remove(path string) {
	h.Helper()
	require.NoError(h, h.operator.Delete(path, -1))
}

// stat returns the Stat of a znode, which must exist.
func (h *harness) stat(path string) *zk.Stat {
	h.Helper()
	exists, stat, err := h.operator.Exists(path)
	require.NoError(h, err)
	require.True(h, exists, path)
	return stat
}

// createContender creates the znode of another program's candidate, with a name like those of
// Curator, in the session of the operator, and returns its path.
func (h *harness) createContender() string {
	h.Helper()
	h.contenders++
	name := fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d-latch-", node, h.contenders)
	path, err := h.operator.Create(name, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
	require.NoError(h, err)
	return path
}

// childNames returns the names of the children of the election node.
func (h *harness) childNames() (names []string) {
	for _, line := range strings.Split(h.srv.Tree(), "\n") {
		if child, ok := strings.CutPrefix(line, "    "); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(child), " ")
			names = append(names, name)
		}
	}
	return names
}

// candidateIDs returns the paths of the children of the election node.
func (h *harness) candidateIDs() (ids []string) {
	for _, name := range h.childNames() {
		ids = append(ids, path.Join(node, name))
	}
	return ids
}

// requireIDs requires that the election node has exactly the children with these paths.
func (h *harness) requireIDs(ids ...string) {
	h.Helper()
	require.ElementsMatch(h, ids, h.candidateIDs())
}

// requireChildren requires that the election node has exactly the children with these names.
func (h *harness) requireChildren(names ...string) {
	h.Helper()
	require.ElementsMatch(h, names, h.childNames())
}

// requireNoElection requires that the election node does not exist.
func (h *harness) requireNoElection() {
	h.Helper()
	exists, _, err := h.operator.Exists(node)
	require.NoError(h, err)
	require.False(h, exists)
}

// createdIDs returns the paths of all candidates' znodes that were created so far.
func (h *harness) createdIDs() []string { return bubble.Created(h.srv, node) }

// watchedPaths returns the paths of the election node and of its children that are watched at server 0, once
// for each watch.
func (h *harness) watchedPaths() (paths []string) {
	for _, x := range h.srv.Watches() {
		if strings.HasPrefix(x.Path, node) {
			paths = append(paths, x.Path)
		}
	}
	return paths
}

// forEachLoss runs f once, with new servers, for each of the given ways to lose a reply or a connection.
func forEachLoss(t *testing.T, losses []bubble.Fault, servers int, f func(h *harness, l bubble.Fault)) {
	for _, l := range losses {
		runWithServers(t, l.Name, servers, func(h *harness) { f(h, l) })
	}
}

// receive receives from a channel that must not be empty.
func receive[T any](h *harness, c <-chan T) (v T) {
	h.Helper()
	select {
	case v = <-c:
	default:
		require.Fail(h, "nothing to receive")
	}
	return v
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// packetPause is the pause between the packets that a client receives.
type packetPause struct{ d atomic.Int64 }

func (p *packetPause) set(d time.Duration) { p.d.Store(int64(d)) }

// connectSlowly opens a session whose client receives one packet at a time, with a pause before
// each, in which it processes the previous one. So the client reacts to notifications in the order
// in which the server has sent them. The pause is 0 at first.
func (h *harness) connectSlowly() (*zk.Conn, *packetPause) {
	pause := &packetPause{}
	dial := h.ensemble.Dialer()
	return h.connect(zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &packetConn{Conn: conn, pause: pause}, nil
	})), pause
}

// packetConn is a network connection that delivers one packet at a time. Only its reader uses the fields head
// and body.
type packetConn struct {
	net.Conn
	pause *packetPause
	head  []byte // the part of a packet's header that was not read yet
	body  int    // the number of bytes of a packet's body that were not read yet
}

func (c *packetConn) Read(b []byte) (int, error) {
	if len(c.head) == 0 && c.body == 0 {
		time.Sleep(time.Duration(c.pause.d.Load()))
		var head [4]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		c.head, c.body = head[:], int(binary.BigEndian.Uint32(head[:]))
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b[:min(len(b), c.body)])
	c.body -= n
	return n, err
}
