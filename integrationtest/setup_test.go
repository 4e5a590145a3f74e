package integrationtest

import (
	"context"
	"crypto/rand"
	"io"
	"log"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// sessionTimeout is the timeout of most sessions. It is so long that servers which do not
	// answer for some seconds, on a busy machine, end neither sessions nor leases.
	sessionTimeout = 20 * time.Second
	// shortTimeout is the timeout of sessions in tests that let a session or a lease expire, or
	// that check that something takes less time than that.
	shortTimeout = 4 * time.Second
	// patience is how long a test waits for what must come.
	patience = time.Minute
	// confirmed is longer than what may wait for ZooKeeper's confirmation for a second and a half
	// takes on a machine that stands still for as long, and shorter than a session lives.
	confirmed = shortTimeout - shortTimeout/8
	// calm is how long a test looks for what must not come.
	calm = 300 * time.Millisecond
)

// client is a connection over a link that a test can break.
type client struct {
	*zk.Conn
	link    link
	timeout time.Duration // of its session
}

// connect opens a session on the shared server.
func connect(t testing.TB) *client {
	t.Helper()
	return connectTo(t, sessionTimeout, shared.Addrs()...)
}

// connectShortly opens a session with a short timeout on the shared server.
func connectShortly(t testing.TB) *client {
	t.Helper()
	return connectTo(t, shortTimeout, shared.Addrs()...)
}

// connectTo opens a session on the first of the servers that answers. It ends
// with the test, which waits for the last goroutine of the connection.
func connectTo(t testing.TB, timeout time.Duration, addrs ...string) *client {
	t.Helper()
	c := dial(t, timeout, addrs...)
	c.waitForSession(t)
	if !slices.Equal(addrs, shared.Addrs()) {
		c.link.beforeReconnect() // its servers may be stopped
	}
	return c
}

// dial is connectTo without waiting for a session.
func dial(t testing.TB, timeout time.Duration, addrs ...string) *client {
	t.Helper()
	return dialOver(t, timeout, newLink(t, addrs), nil)
}

// connectDirectly is connect without a link that could be broken, for tests
// that send much.
func connectDirectly(t testing.TB) *client {
	t.Helper()
	c := dialOver(t, sessionTimeout, nil, shared.Addrs())
	c.waitForSession(t)
	return c
}

func dialOver(t testing.TB, timeout time.Duration, l link, direct []string) *client {
	t.Helper()
	return dialWith(t, timeout, l, direct, func(addrs []string) zk.HostProvider { return &inOrder{servers: addrs} })
}

// dialWith is dialOver with a HostProvider of the test's own.
func dialWith(t testing.TB, timeout time.Duration, l link, direct []string, provider func(addrs []string) zk.HostProvider) *client {
	t.Helper()
	addrs := append(l.addrs(), direct...)
	conn, events, err := zk.Connect(addrs, timeout,
		zk.WithHostProvider(provider(addrs)), zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		l.cut()            // a client in the middle of a handshake is slow to notice
		for range events { // closed when the connection's goroutine ends
		}
	})
	return &client{Conn: conn, link: l, timeout: timeout}
}

func (c *client) waitForSession(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return c.State() == zk.StateHasSession }, patience, 5*time.Millisecond, "no session")
}

// inOrder is a zk.HostProvider that tries the servers in the order given; the
// client library hands Init a shuffled one.
type inOrder struct {
	servers []string

	mu       sync.Mutex
	at, last int
}

func (h *inOrder) Init([]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.last = -1, -1
	return nil
}

func (h *inOrder) Len() int { return len(h.servers) }

// Next returns retryStart when all servers were tried since the last success.
func (h *inOrder) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = (h.at + 1) % len(h.servers)
	retryStart = h.at == h.last
	if h.last == -1 {
		h.last = 0
	}
	return h.servers[h.at], retryStart
}

func (h *inOrder) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.at
}

// from gives the servers' addresses beginning with that of server i.
func from(e *ensemble.Ensemble, i int) []string {
	addrs := e.Addrs()
	return append(addrs[i:len(addrs):len(addrs)], addrs[:i]...)
}

// newPath is an unused path for an election.
func newPath(t testing.TB) string {
	return "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8]
}

// newNode creates an election node, as clients do.
func newNode(t testing.TB, conn *client) string {
	t.Helper()
	node, err := conn.Create(newPath(t), nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return node
}

func exists(t testing.TB, conn *client, node string) bool {
	t.Helper()
	found, _, err := conn.Exists(node)
	require.NoError(t, err)
	return found
}

func children(t testing.TB, conn *client, node string) []string {
	t.Helper()
	_, err := conn.Sync(node)
	require.NoError(t, err)
	names, _, err := conn.Children(node)
	require.NoError(t, err)
	return names
}

// waitGone waits until a znode does not exist any more. The connection may break in that time.
func waitGone(t testing.TB, conn *client, node string) {
	t.Helper()
	limit := time.After(patience)
	for {
		found, _, watch, err := conn.ExistsW(node)
		if err == nil && !found {
			return
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(50 * time.Millisecond)
		}
		select {
		case <-watch:
		case <-again:
		case <-limit:
			require.Fail(t, "znode is still there", "%s: %v", node, err)
		}
	}
}

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond, what)
}

// candidate is an Election whose ElectLeader runs.
type candidate struct {
	*leaderelection.Election

	returned chan struct{} // closed when ElectLeader has returned
	err      error         // what it returned
}

// newCandidate makes a candidate that does not take part yet.
func newCandidate(t testing.TB, conn *client, node string, opts ...leaderelection.Option) *candidate {
	t.Helper()
	opts = append([]leaderelection.Option{leaderelection.WithSessionTimeout(conn.timeout)}, opts...)
	e, err := leaderelection.NewElection(conn.Conn, node, opts...)
	require.NoError(t, err)
	return &candidate{Election: e, returned: make(chan struct{})}
}

func (c *candidate) start() {
	go func() {
		defer close(c.returned)
		c.err = c.ElectLeader()
	}()
}

// enlist makes a candidate and has it take part until the test's end.
func enlist(t testing.TB, conn *client, node string, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := newCandidate(t, conn, node, opts...)
	c.start()
	t.Cleanup(func() {
		_ = c.Resign() // the connection may be gone
		<-c.returned
	})
	return c
}

// lead enlists a candidate that leads at once.
func lead(t testing.TB, conn *client, node string, opts ...leaderelection.Option) (*candidate, *leaderelection.Leadership) {
	t.Helper()
	c := enlist(t, conn, node, opts...)
	return c, c.leads(t)
}

// follow enlists a candidate that follows another.
func follow(t testing.TB, conn *client, node string, ahead *candidate, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := enlist(t, conn, node, opts...)
	c.follows(t, ahead)
	return c
}

// next waits for a status.
func (c *candidate) next(t testing.TB) leaderelection.Status {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.True(t, ok, "the channel is closed")
		require.Equal(t, s.Role == leaderelection.Leader, s.Leadership != nil, "leadership of %v", s)
		return s
	case <-time.After(patience):
		require.Fail(t, "no status")
		panic("unreachable")
	}
}

// leads waits for the status of a leader, which must be the next one.
func (c *candidate) leads(t testing.TB) *leaderelection.Leadership {
	t.Helper()
	s := c.next(t)
	require.Equal(t, leaderelection.Leader, s.Role, "%v", s)
	require.NoError(t, s.Err)
	require.Empty(t, s.NowFollowing)
	require.Equal(t, c.ID(), s.CandidateID)
	require.NotZero(t, s.Leadership.Token())
	return s.Leadership
}

// follows waits for the status of a follower, which must be the next one.
func (c *candidate) follows(t testing.TB, ahead *candidate) leaderelection.Status {
	t.Helper()
	s := c.next(t)
	require.Equal(t, leaderelection.Follower, s.Role, "%v", s)
	require.NoError(t, s.Err)
	require.Equal(t, ahead.ID(), s.NowFollowing)
	require.Equal(t, c.ID(), s.CandidateID)
	return s
}

// rest reads the channel until it is closed.
func (c *candidate) rest(t testing.TB) (all []leaderelection.Status) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case s, ok := <-c.Status():
			if !ok {
				return all
			}
			all = append(all, s)
		case <-limit:
			require.Fail(t, "the channel stays open", "read %v", all)
		}
	}
}

// ends waits for the end of the candidacy and checks that it is told of once,
// by the last status. Those before may be of a leader who is suspended.
func (c *candidate) ends(t testing.TB, reason error) {
	t.Helper()
	all := c.rest(t)
	require.NotEmpty(t, all, "the channel was closed without a final status")
	for _, s := range all[:len(all)-1] {
		require.NoError(t, s.Err, "only the final status has an error: %v", all)
		require.Equal(t, leaderelection.Suspended, s.Role, "%v", all)
	}
	final := all[len(all)-1]
	require.ErrorIs(t, final.Err, reason)
	require.Equal(t, leaderelection.Follower, final.Role)
	require.Nil(t, final.Leadership)
	require.ErrorIs(t, c.result(t), reason)
}

// result waits until ElectLeader returns.
func (c *candidate) result(t testing.TB) error {
	t.Helper()
	select {
	case <-c.returned:
		return c.err
	case <-time.After(patience):
		require.Fail(t, "ElectLeader does not return")
		return nil
	}
}

// closesSilently waits for the channel's close, before which nothing must come.
func (c *candidate) closesSilently(t testing.TB) {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.False(t, ok, "got %v", s)
	case <-time.After(patience):
		require.Fail(t, "the channel is not closed")
	}
}

// isClosed checks that the channel is closed already, and nothing is left in it.
func (c *candidate) isClosed(t testing.TB) {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.False(t, ok, "got %v", s)
	default:
		require.Fail(t, "the channel is not closed")
	}
}

// quiet checks that no status comes for a while.
func (c *candidate) quiet(t testing.TB, d time.Duration) {
	t.Helper()
	limit := time.After(max(d, time.Millisecond)) // a ready channel must win
	select {
	case s, ok := <-c.Status():
		require.Fail(t, "unexpected status", "%v, open: %v", s, ok)
	case <-limit:
	}
}

// resign withdraws the candidate and checks that all is well.
func (c *candidate) resign(t testing.TB) {
	t.Helper()
	electiontest.Confirm(t, c.Resign)
	c.closesSilently(t)
	require.NoError(t, c.result(t))
}

// ends waits for the end of a leadership and checks why.
func ends(t testing.TB, l *leaderelection.Leadership, reason error) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(patience):
		require.Fail(t, "the leadership does not end")
	}
	require.ErrorIs(t, l.Err(), reason)
	require.Error(t, l.Context().Err())
	require.ErrorIs(t, context.Cause(l.Context()), reason)
}

func base(c *candidate) string { return path.Base(c.ID()) }
