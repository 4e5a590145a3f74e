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

// apiFunc is a function of the package with a connection and an election node. Observe has a parameter for
// the context, which opts cannot replace.
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
			_, err := leaderelection.Candidates(t.Context(), conn, node, opts...)
			return err
		},
		"Observe": func(conn *zk.Conn, node string, opts ...leaderelection.Option) error {
			c, err := leaderelection.Observe(t.Context(), conn, node, opts...)
			assert.Equal(t, err != nil, c == nil)
			return err
		},
	}
}

// TestErrors_InvalidArguments fails if an invalid argument does not have its specific error, or if a node is
// created.
func TestErrors_InvalidArguments(t *testing.T) {
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
			assert.ErrorIs(t, call(nil, missing, create), leaderelection.ErrInvalid)
			assert.ErrorIs(t, call(closed.Conn, missing, create), leaderelection.ErrConnClosed)
			assert.ErrorIs(t, call(down.Conn, missing, create, leaderelection.WithSessionTimeout(short)), leaderelection.ErrUnreachable)
			for _, path := range []string{
				"", "election", "/", "//", missing + "/", "/" + missing, missing + "//a",
				missing + "/./a", missing + "/../a", missing + "\x00", missing + "\u0080", missing + "\uf000", missing + "\U0001f402",
			} {
				assert.ErrorIs(t, call(conn.Conn, path, create), leaderelection.ErrInvalid, "%q", path)
			}
			for _, opt := range []leaderelection.Option{
				nil, leaderelection.WithLogger(nil), leaderelection.WithACL(nil),
				leaderelection.WithSessionTimeout(0), leaderelection.WithNamePrefix("a/b"),
			} {
				assert.ErrorIs(t, call(conn.Conn, missing, create, opt), leaderelection.ErrInvalid)
			}
			if name == "DeleteElection" {
				assert.NoError(t, call(conn.Conn, missing))
			} else {
				assert.ErrorIs(t, call(conn.Conn, missing), leaderelection.ErrNoElection)
			}
			assert.False(t, znodeExists(t, conn, missing), "the node was created")
		})
	}
}

// TestErrors_InvalidContext fails if a nil context is accepted, or if an ended context is not reported with
// its cause.
func TestErrors_InvalidContext(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	var none context.Context
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	for want, ctx := range map[error]context.Context{
		leaderelection.ErrInvalid: none,
		assert.AnError:            ended,
	} {
		missing := harness.NewPath(t)
		for name, call := range apiFuncs(t) {
			if name != "Observe" && name != "Candidates" { // they have a parameter
				err := call(conn.Conn, missing, leaderelection.WithCreateNode(), leaderelection.WithContext(ctx))
				assert.ErrorIs(t, err, want, name)
			}
		}
		_, err := leaderelection.Observe(ctx, conn.Conn, missing)
		assert.ErrorIs(t, err, want)
		_, err = leaderelection.Candidates(ctx, conn.Conn, missing)
		assert.ErrorIs(t, err, want)
		assert.False(t, znodeExists(t, conn, missing), "the node was created")
	}
}

// TestErrors_NoPermission uses an election node with the digest ACL of another user.
func TestErrors_NoPermission(t *testing.T) {
	t.Parallel()
	owner, conn := connect(t), connect(t)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	node, err := owner.Create(harness.NewPath(t), nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret"))
	require.NoError(t, err)

	c := newCandidate(t, conn, node) // every user may ask whether the node exists
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

	// The owner has the permission.
	startLeader(t, owner, node)
}

// TestErrors_InvalidACL uses an ACL that the server refuses, because the candidate has no digest.
func TestErrors_InvalidACL(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c := newCandidate(t, conn, node, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrPermission)
	require.Empty(t, listChildren(t, conn, node))
}

// TestTrap41_ErrorsAreReported fails if an error ends the candidacy without a report.
func TestTrap41_ErrorsAreReported(t *testing.T) {
	t.Parallel()
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name string
		acl  []zk.ACL // of the election node, set before the start
		own  []zk.ACL // of the candidate's znode
	}{
		{"create not permitted", without(zk.PermCreate), nil},
		{"list not permitted", without(zk.PermRead), nil},
		{"reading the candidate not permitted", nil, without(zk.PermRead)},
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
			require.Zero(t, readStat(t, admin, node).NumChildren, "a child remains")
		})
	}
	t.Run("reading the predecessor not permitted", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connect(t)
		node := createElectionNode(t, admin)
		ahead, err := admin.Create(node+"/_c_"+newUUID()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, without(zk.PermRead))
		require.NoError(t, err)
		e := newCandidate(t, conn, node)
		e.startElecting()
		require.Equal(t, ahead, e.nextStatus(t).NowFollowing)
		require.NoError(t, admin.Delete(ahead, -1))
		e.requireLeader(t) // the candidate asks for the predecessor at intervals
	})
	t.Run("transient error", func(t *testing.T) {
		t.Parallel()
		// The candidate continues whichever request the connection breaks at, before it or before its reply.
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
					r.Release() // the faults that have not met their request
				}
				electiontest.Confirm(t, c.Resign)
				require.Empty(t, listChildren(t, admin, node))
			}
		}
	})
}

// TestErrors_ElectionDeletedBeforeStart fails if the channel is not closed, or if ElectLeader does not
// return, after an error at the start.
func TestErrors_ElectionDeletedBeforeStart(t *testing.T) {
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

// TestErrors_PermissionLostLater fails if a candidate hangs without a watch after an error in a later
// election.
func TestErrors_PermissionLostLater(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, other, node, leader)
	f2 := startFollower(t, conn, node, f1)
	// f2 may not list the election node when it has to.
	_, err := conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
	require.NoError(t, err)
	f1.resign(t)
	f2.requireEnded(t, leaderelection.ErrPermission)
	waitDeleted(t, other, f2.ID())
	leader.requireNoStatus(t, quietTime)
}

// TestErrors_CandidateDeleted fails if a deleted candidate ends with ErrElectionOver.
func TestErrors_CandidateDeleted(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	require.NoError(t, conn.Delete(leader.ID(), -1))
	leader.requireEnded(t, leaderelection.ErrDeleted)
	requireLost(t, grant, leaderelection.ErrDeleted)
	require.NotErrorIs(t, leader.waitResult(t), leaderelection.ErrElectionOver)
}
