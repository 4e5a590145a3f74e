package integrationtest

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// apiFunc is a function of the package that takes a connection and a node.
// Observe has a context of its own, which opts cannot replace.
type apiFunc func(conn *zk.Conn, node string, opts ...leaderelection.Option) error

func apiFuncs(t *testing.T) map[string]apiFunc {
	return map[string]apiFunc{
		"NewElection": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			e, err := leaderelection.NewElection(conn, node, opts...)
			assert.Equal(t, err != nil, e == nil)
			return err
		},
		"DeleteElection": leaderelection.DeleteElection,
		"Candidates": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			_, err := leaderelection.Candidates(conn, node, opts...)
			return err
		},
		"CurrentLeader": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			_, found, err := leaderelection.CurrentLeader(conn, node, opts...)
			assert.False(t, found)
			return err
		},
		"Observe": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			c, err := leaderelection.Observe(t.Context(), conn, node, opts...)
			assert.Equal(t, err != nil, c == nil)
			return err
		},
	}
}

// Each bad input has an error of its own, and nothing is created.
func TestBadInput(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	closed := connect(t)
	closed.Close()
	down := harness.Dial(t, sessionTimeout, shared.Addr(0))
	down.Network.Cut()
	const short = 300 * time.Millisecond
	missing := harness.NewPath(t)

	for name, call := range apiFuncs(t) {
		t.Run(name, func(t *testing.T) {
			create := leaderelection.WithCreateNode()
			assert.ErrorIs(t, call(nil, missing, create), leaderelection.ErrNilConn)
			assert.ErrorIs(t, call(closed.Conn, missing, create), leaderelection.ErrConnClosed)
			assert.ErrorIs(t, call(down.Conn, missing, create, leaderelection.WithSessionTimeout(short)), leaderelection.ErrUnreachable)
			for _, path := range []string{
				"", "election", "/", "//", missing + "/", "/" + missing, missing + "//a",
				missing + "/./a", missing + "/../a", missing + "\x00", missing + "\u0080", missing + "\uf000",
			} {
				assert.ErrorIs(t, call(conn.Conn, path, create), leaderelection.ErrInvalidPath, "%q", path)
			}
			for _, opt := range []leaderelection.Option{
				nil, leaderelection.WithLogger(nil), leaderelection.WithACL(nil),
				leaderelection.WithSessionTimeout(0), leaderelection.WithNaming("7"),
			} {
				assert.ErrorIs(t, call(conn.Conn, missing, create, opt), leaderelection.ErrInvalidOption)
			}
			if name == "DeleteElection" {
				assert.NoError(t, call(conn.Conn, missing))
			} else {
				assert.ErrorIs(t, call(conn.Conn, missing), leaderelection.ErrNoElection)
			}
			assert.False(t, znodeExists(t, conn, missing), "it was created")
		})
	}
}

// A context that is nil is refused, one that has ended is told by its cause.
func TestBadContext(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	var none context.Context
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	for want, ctx := range map[error]context.Context{
		leaderelection.ErrInvalidOption: none,
		assert.AnError:                  ended,
	} {
		missing := harness.NewPath(t)
		for name, call := range apiFuncs(t) {
			if name != "Observe" {
				err := call(conn.Conn, missing, leaderelection.WithCreateNode(), leaderelection.WithContext(ctx))
				assert.ErrorIs(t, err, want, name)
			}
		}
		_, err := leaderelection.Observe(ctx, conn.Conn, missing)
		assert.ErrorIs(t, err, want)
		assert.False(t, znodeExists(t, conn, missing), "it was created")
	}
}

// No permission, by a digest ACL of somebody else.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	owner, conn := connect(t), connect(t)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	node, err := owner.Create(harness.NewPath(t), nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret"))
	require.NoError(t, err)

	c := newCandidate(t, conn, node) // whether it exists everybody may know
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.ErrorIs(t, c.waitResult(t), zk.ErrNoAuth)
	electiontest.Confirm(t, c.Resign)
	for name, call := range apiFuncs(t) {
		if name != "NewElection" {
			assert.ErrorIs(t, call(conn.Conn, node), leaderelection.ErrPermission, name)
		}
	}
	below := node + "/below"
	assert.ErrorIs(t, apiFuncs(t)["NewElection"](conn.Conn, below, leaderelection.WithCreateNode()), leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, owner, node))

	// The owner may.
	startLeader(t, owner, node)
}

// An ACL that the server does not accept, of a candidate without a digest.
func TestInvalidACL(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c := newCandidate(t, conn, node, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, conn, node))
}

// Trap 41: an error ends the loop in silence, and the process never leads again.
func TestTrap41_ErrorsAreTold(t *testing.T) {
	t.Parallel()
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name string
		acl  []zk.ACL // of the election node, from the moment of the start
		own  []zk.ACL // of the candidate's znode
	}{
		{"may not create", without(zk.PermCreate), nil},
		{"may not list", without(zk.PermRead), nil},
		{"may not read its own", nil, without(zk.PermRead)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connect(t)
			node := createElectionNode(t, admin)
			opts := []leaderelection.Option{leaderelection.WithRejoin()}
			if c.own != nil {
				opts = append(opts, leaderelection.WithACL(c.own))
			}
			e := newCandidate(t, conn, node, opts...)
			if c.acl != nil {
				_, err := admin.SetACL(node, c.acl, -1)
				require.NoError(t, err)
			}
			e.startElecting()
			e.requireEnded(t, leaderelection.ErrPermission)
			require.Zero(t, readStat(t, admin, node).NumChildren, "something was left behind")
		})
	}
	t.Run("may not read the predecessor", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connect(t)
		node := createElectionNode(t, admin)
		_, err := admin.Create(node+"/_c_"+newUUID()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, without(zk.PermRead))
		require.NoError(t, err)
		e := newCandidate(t, conn, node)
		e.startElecting()
		e.requireEnded(t, leaderelection.ErrPermission)
		require.Len(t, listChildren(t, admin, node), 1)
	})
	t.Run("passes by itself", func(t *testing.T) {
		t.Parallel()
		// Whatever request the link breaks at, before it or before its reply,
		// the candidate goes on.
		for _, cut := range lostReplies[:2] {
			for k := 1; k <= 4; k++ {
				admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
				node := createElectionNode(t, admin)
				ahead := createContender(t, admin, node)
				var rules []*zkproxy.Handle
				for _, p := range conn.Network {
					rules = append(rules, p.On(zkproxy.Rule{
						K: k, Action: cut.action,
						Path: func(path string) bool { return path == node || isBelow(node)(path) },
					}))
				}
				c := newCandidate(t, conn, node)
				c.startElecting()
				require.Equal(t, ahead, c.nextStatus(t).NowFollowing, "%s, request %d", cut.name, k)
				deleteZnode(t, admin, ahead)
				c.requireLeader(t)
				for _, r := range rules {
					r.Release() // what has not met its request
				}
				electiontest.Confirm(t, c.Resign)
				require.Empty(t, listChildren(t, admin, node))
			}
		}
	})
}

// C8: after an error at the start the channel was not closed and ElectLeader
// did not return.
func TestC08ErrorAtStart(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	var late []*candidate
	for range 300 {
		late = append(late, newCandidate(t, conn, node))
	}
	marker := path.Join(node, "DONE")
	_, err := conn.Create(marker, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, c := range late[:150] {
		c.startElecting()
	}
	for _, c := range late[:150] {
		c.requireEnded(t, leaderelection.ErrElectionOver)
	}
	require.Equal(t, []string{"DONE"}, listChildren(t, conn, node))
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range late[150:] {
		c.startElecting()
	}
	for _, c := range late[150:] {
		c.requireEnded(t, leaderelection.ErrElectionOver)
	}
}

// C9: after an error at a later election the candidate hung, without a watch.
func TestC09ErrorLater(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, elsewhere, node, leader)
	f2 := startFollower(t, conn, node, f1)
	// f2 may not list the election any more when it has to.
	_, err := conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
	require.NoError(t, err)
	f1.resign(t)
	f2.requireEnded(t, leaderelection.ErrPermission)
	waitDeleted(t, elsewhere, f2.ID())
	leader.requireNoStatus(t, quietTime)
}

// C14: errors were texts to search. Here each has its value: the end of a
// leader by deletion, which had none, and see TestBadInput.
func TestC14TypedErrors(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	require.NoError(t, conn.Delete(leader.ID(), -1))
	leader.requireEnded(t, leaderelection.ErrCandidateDeleted)
	requireLost(t, grant, leaderelection.ErrCandidateDeleted)
	require.NotErrorIs(t, leader.waitResult(t), leaderelection.ErrElectionOver)
}

// Case: TestNilZKConn.
func TestNilConn(t *testing.T) {
	t.Parallel()
	e, err := leaderelection.NewElection(nil, "/election")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	require.Nil(t, e)
}

// Case: TestMissingElectionResource.
func TestMissingElectionNode(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := harness.NewPath(t)
	e, err := leaderelection.NewElection(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrNoElection)
	require.Nil(t, e)
	require.False(t, znodeExists(t, conn, node))
}
