package integrationtest

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// The numbers of the tests are those of docs/traps.md: failure scenarios that other
// libraries found in production. Numbers that are missing belong to other recipes or need a
// server that can be made to misbehave.

// cuts are the ways in which the outcome of a request can become unknown.
var cuts = []struct {
	name    string
	action  zkproxy.Action
	applied bool
}{
	{"cut before the request", zkproxy.CutBeforeRequest, false},
	{"cut before the reply", zkproxy.CutAfterApplied, true},
	{"silence instead of the reply", zkproxy.DropReplyBlackhole, true},
}

// Trap 1: a create is applied and its reply lost; an orphan that nobody owns
// blocks the line.
func TestTrap01_CreateReplyLost(t *testing.T) {
	t.Parallel()
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
			node := newNode(t, admin)
			rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: cut.action})
			session := conn.SessionID()

			c, l := lead(t, conn, node)
			await(t, rule.Done(), "the fault")
			onlyChild(t, admin, node, c, conn)
			require.Equal(t, session, conn.SessionID(), "it had to be solved within the session")
			require.Equal(t, 1, creates(t, admin, node), "the lost create counts, and it is the only one")
			require.Equal(t, statOf(t, admin, c.ID()).Czxid, l.Token())

			next := follow(t, admin, node, c)
			c.resign(t)
			next.leads(t)
			require.Equal(t, []string{base(next)}, children(t, admin, node))
		})
	}
}

// Trap 1, for one that is not the first: it must not follow its own orphan.
func TestTrap01_CreateReplyLostBehindLeader(t *testing.T) {
	t.Parallel()
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
			node := newNode(t, admin)
			leader, _ := lead(t, admin, node)
			conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: cut.action})

			c := follow(t, conn, node, leader)
			require.Len(t, children(t, admin, node), 2)
			leader.resign(t)
			l := c.leads(t)
			onlyChild(t, admin, node, c, conn)
			require.Equal(t, statOf(t, admin, c.ID()).Czxid, l.Token())
		})
	}
}

// Trap 2: the search for the own GUID finds a znode of another session, the
// dying one, and takes it for the own.
func TestTrap02_ForeignOwner(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.CutAfterApplied})
	conn.link.refuse()
	c := enlist(t, conn, node)
	await(t, rule.Done(), "the fault")

	// While the candidate is away its znode is exchanged for one of the same
	// GUID that another session owns.
	mine := children(t, admin, node)
	require.Len(t, mine, 1)
	impostor, err := admin.Create(path.Join(node, guid(mine[0])), nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	remove(t, admin, path.Join(node, mine[0]))
	conn.link.restore()

	l := c.leads(t)
	require.NotEqual(t, impostor, c.ID())
	onlyChild(t, admin, node, c, conn)
	require.Equal(t, statOf(t, admin, c.ID()).Czxid, l.Token())
}

// Trap 3: the search is served by a server that lags behind, and the znode of
// the first create shows up after the second, ahead of it: a candidate that
// waits for itself.
func TestTrap03_OwnZnodeShowsUpLate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	leader := contender(t, admin, node)
	remove(t, admin, contender(t, admin, node)) // leaves a gap in the sequence
	rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.CutBeforeRequest})
	c := enlist(t, conn, node)
	await(t, rule.Done(), "the fault")
	require.Equal(t, leader, c.next(t).NowFollowing)

	// What the first create might have made now appears, in the gap.
	var first string
	for _, r := range conn.link[0].Log() {
		if r.Dropped {
			first = r.Path
		}
	}
	require.NotEmpty(t, first)
	late := func(sequence string) string {
		path, err := conn.Create(first+sequence, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		return path
	}
	stray := late("0000000001")
	_, err := admin.Set(leader, []byte("has the candidate look again"), -1)
	require.NoError(t, err)
	waitGone(t, admin, stray)
	c.quiet(t, calm)
	require.Equal(t, leader, c.Current().NowFollowing)

	remove(t, admin, leader)
	c.leads(t)
	// One that shows up still later goes when the candidate does.
	late("0000000000")
	c.resign(t)
	require.Empty(t, children(t, admin, node))
}

// Trap 4: one GUID for several creates: after a reset the same name can come
// back.
func TestTrap04_FreshGUIDForEachCreate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	p := conn.link[0]
	for range 2 {
		p.On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.CutBeforeRequest})
	}
	c, _ := lead(t, conn, node, leaderelection.WithRejoin())
	for range 2 {
		expire(t, conn)
		conn.link.restore()
		for s := c.next(t); s.Role != leaderelection.Leader; s = c.next(t) {
			require.NoError(t, s.Err)
		}
	}

	prefixes := map[string]bool{}
	for _, r := range p.Log() {
		if r.Kind == zkproxy.Request && r.Op == zkproxy.OpCreate && strings.HasPrefix(r.Path, node+"/") {
			require.False(t, prefixes[r.Path], "%s was used before", r.Path)
			prefixes[r.Path] = true
		}
	}
	require.Len(t, prefixes, 5, "two that were cut, and one for each session")
	onlyChild(t, admin, node, c, conn)
}

// Trap 36: the election node is deleted between the look at it and the create.
// It must not be created anew behind the user's back.
func TestTrap36_NodeGoneBeforeCreate(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	t.Run("at once", func(t *testing.T) {
		node := newNode(t, admin)
		c := newCandidate(t, conn, node, leaderelection.WithCreateNode())
		remove(t, admin, node)
		c.start()
		c.ends(t, leaderelection.ErrElectionOver)
		require.False(t, exists(t, admin, node))
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("while the connection is down", func(t *testing.T) {
		node := newNode(t, admin)
		rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.CutBeforeRequest})
		conn.link.refuse()
		c := newCandidate(t, conn, node, leaderelection.WithRejoin())
		c.start()
		await(t, rule.Done(), "the fault")
		remove(t, admin, node)
		conn.link.restore()
		c.ends(t, leaderelection.ErrElectionOver)
		require.False(t, exists(t, admin, node))
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("with missing parents", func(t *testing.T) {
		node := newPath(t) + "/a/b"
		c, _ := lead(t, conn, node, leaderelection.WithCreateNode())
		onlyChild(t, admin, node, c, conn)
	})
}

// Trap 40: the end comes while the create is under way, and leaves an orphan.
func TestTrap40_EndDuringCreate(t *testing.T) {
	t.Parallel()
	for _, action := range []struct {
		name string
		zkproxy.Action
	}{
		{"reply is late", zkproxy.HoldReply},
		{"reply is lost", zkproxy.DropReplyBlackhole},
	} {
		t.Run(action.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
			node := newNode(t, admin)
			rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: action.Action})
			session := conn.SessionID()
			c := enlist(t, conn, node)
			await(t, rule.Done(), "the fault")
			orphan := children(t, admin, node)
			require.Len(t, orphan, 1, "the create is applied")

			begin := time.Now()
			err := c.Resign()
			require.ErrorIs(t, err, leaderelection.ErrUnconfirmed, "nobody can know yet")
			require.Less(t, time.Since(begin), confirmed)
			c.closesSilently(t)
			require.NoError(t, c.result(t))

			rule.Release()
			waitGone(t, admin, path.Join(node, orphan[0]))
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session's end is no solution")
			require.Empty(t, children(t, admin, node))
		})
	}
}
