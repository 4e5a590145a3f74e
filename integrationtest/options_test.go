package integrationtest

import (
	"bytes"
	"context"
	"log/slog"
	"path"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// C18: there was no context. Its end is that of Resign.
func TestC18Context(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	ctx, cancel := context.WithCancel(t.Context())
	leader, grant := lead(t, conn, node, leaderelection.WithContext(ctx))
	follower := follow(t, conn, node, leader)
	cancel()
	require.NoError(t, leader.result(t))
	leader.isClosed(t)
	ends(t, grant, leaderelection.ErrResigned)
	follower.leads(t)
	electiontest.Confirm(t, leader.Resign)
	require.ErrorIs(t, leader.ElectLeader(), leaderelection.ErrCandidacyOver)

	// A context that ends before or between NewElection and ElectLeader.
	ctx, cancel = context.WithCancel(t.Context())
	c := newCandidate(t, conn, node, leaderelection.WithContext(ctx))
	cancel()
	c.start()
	require.NoError(t, c.result(t))
	c.isClosed(t)
	require.Equal(t, []string{base(follower)}, children(t, conn, node))
}

// C18: there was no way back after the loss of a session.
func TestC18Rejoin(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	c, first := lead(t, conn, node, leaderelection.WithRejoin(), leaderelection.WithClientName("again"))
	follower := follow(t, elsewhere, node, c)
	last := follow(t, conn, node, follower, leaderelection.WithRejoin())
	oldID := c.ID()

	expire(t, conn)
	second := follower.leads(t)
	require.Greater(t, second.Token(), first.Token())
	conn.link.restore()
	for _, c := range []*candidate{c, last} {
		eventually(t, func() bool { return c.Current().NowFollowing != "" && exists(t, elsewhere, c.ID()) && c.ID() != oldID }, "it is back")
	}
	// Leader, suspended where that was seen, out of line, following.
	s := c.next(t)
	for s.NowFollowing == "" {
		require.NotEqual(t, leaderelection.Leader, s.Role)
		require.NoError(t, s.Err)
		s = c.next(t)
	}
	require.True(t, isAny(first.Err(), leaderelection.ErrSessionExpired, leaderelection.ErrLeaseExpired))
	require.NotEqual(t, oldID, c.ID())
	require.Len(t, children(t, elsewhere, node), 3)
	data, stat, err := conn.Get(c.ID())
	require.NoError(t, err)
	require.Equal(t, "again", string(data))
	require.Equal(t, conn.SessionID(), stat.EphemeralOwner)

	follower.resign(t)
	eventually(t, func() bool {
		return c.Current().Role == leaderelection.Leader || last.Current().Role == leaderelection.Leader
	}, "one of them leads")
	electiontest.Confirm(t, c.Resign)
	electiontest.Confirm(t, last.Resign)
	require.Empty(t, children(t, elsewhere, node))
}

// C18: the ACL was fixed.
func TestC18ACL(t *testing.T) {
	t.Parallel()
	member, stranger := connect(t), connect(t)
	require.NoError(t, member.AddAuth("digest", []byte("member:secret")))
	acl := zk.DigestACL(zk.PermAll, "member", "secret")
	opt := leaderelection.WithACL(acl)
	node := path.Join(newPath(t), "below", "election")
	leader, _ := lead(t, member, node, opt, leaderelection.WithCreateNode())
	follower := follow(t, member, node, leader, opt)
	for _, id := range []string{leader.ID(), follower.ID(), node, path.Dir(node)} {
		got, _, err := member.GetACL(id)
		require.NoError(t, err)
		require.Equal(t, acl, got)
	}
	_, _, err := stranger.Get(leader.ID())
	require.ErrorIs(t, err, zk.ErrNoAuth)
	leader.resign(t)
	follower.leads(t)
	require.ErrorIs(t, leaderelection.DeleteElection(stranger.Conn, node), leaderelection.ErrPermission)
	follower.quiet(t, calm)
	electiontest.Confirm(t, follower.EndElection)
	follower.ends(t, leaderelection.ErrElectionOver)
}

// C18: the election node had to be created by the client.
func TestC18CreateNode(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := path.Join(newPath(t), "of", "several", "parts")
	// Many at once.
	var all [8]*candidate
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			e, err := leaderelection.NewElection(conn.Conn, node, leaderelection.WithCreateNode())
			if err == nil {
				all[i] = &candidate{Election: e, returned: make(chan struct{})}
			}
		})
	}
	wg.Wait()
	leaders := 0
	for _, c := range all {
		require.NotNil(t, c)
		c.start()
		if c.next(t).Role == leaderelection.Leader {
			leaders++
		}
	}
	require.Equal(t, 1, leaders)
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	require.Zero(t, stat.EphemeralOwner)
	for _, c := range all {
		electiontest.Confirm(t, c.Resign)
	}
	require.True(t, exists(t, conn, node), "the node is the client's")
}

// C18: nothing could be logged. By default nothing is.
func TestC18Logging(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	var out lockedBuffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, _ := lead(t, conn, node, leaderelection.WithLogger(log), leaderelection.WithClientName("logger"))
	electiontest.Confirm(t, c.Resign)
	for _, want := range []string{node, base(c), "client=logger", "leader"} {
		require.Contains(t, out.String(), want)
	}
}

// lockedBuffer may be read while others still write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Znodes named as kazoo's, in one election with those of the default naming.
func TestKazooNaming(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	kazoo := leaderelection.WithNaming(leaderelection.Kazoo)
	leader, _ := lead(t, conn, node, kazoo)
	require.Regexp(t, `^[0-9a-f]{32}__lock__[0-9]{10}$`, base(leader))
	second := follow(t, conn, node, leader)
	third := follow(t, conn, node, second, kazoo)
	fourth := follow(t, conn, node, third)
	third.resign(t)
	fourth.follows(t, second)
	leader.resign(t)
	second.leads(t)
	second.resign(t)
	fourth.leads(t)
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	fourth.ends(t, leaderelection.ErrElectionOver)
}
