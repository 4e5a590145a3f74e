package integrationtest

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// entry is a function of the package that takes a connection and a node.
// Observe has a context of its own, which opts cannot replace.
type entry func(conn *zk.Conn, node string, opts ...leaderelection.Option) error

func entries(t *testing.T) map[string]entry {
	return map[string]entry{
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
	down := dial(t, sessionTimeout, shared.Addr(0))
	down.link.cut()
	const short = 300 * time.Millisecond
	missing := newPath(t)

	for name, call := range entries(t) {
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
			assert.False(t, exists(t, conn, missing), "it was created")
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
		missing := newPath(t)
		for name, call := range entries(t) {
			if name != "Observe" {
				err := call(conn.Conn, missing, leaderelection.WithCreateNode(), leaderelection.WithContext(ctx))
				assert.ErrorIs(t, err, want, name)
			}
		}
		_, err := leaderelection.Observe(ctx, conn.Conn, missing)
		assert.ErrorIs(t, err, want)
		assert.False(t, exists(t, conn, missing), "it was created")
	}
}

// No permission, by a digest ACL of somebody else.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	owner, conn := connect(t), connect(t)
	require.NoError(t, owner.AddAuth("digest", []byte("owner:secret")))
	node, err := owner.Create(newPath(t), nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret"))
	require.NoError(t, err)

	c := newCandidate(t, conn, node) // whether it exists everybody may know
	c.start()
	c.ends(t, leaderelection.ErrPermission)
	require.ErrorIs(t, c.result(t), zk.ErrNoAuth)
	electiontest.Confirm(t, c.Resign)
	for name, call := range entries(t) {
		if name != "NewElection" {
			assert.ErrorIs(t, call(conn.Conn, node), leaderelection.ErrPermission, name)
		}
	}
	below := node + "/below"
	assert.ErrorIs(t, entries(t)["NewElection"](conn.Conn, below, leaderelection.WithCreateNode()), leaderelection.ErrPermission)
	require.Empty(t, children(t, owner, node))

	// The owner may.
	lead(t, owner, node)
}

// An ACL that the server does not accept, of a candidate without a digest.
func TestInvalidACL(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	c := newCandidate(t, conn, node, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
	c.start()
	c.ends(t, leaderelection.ErrPermission)
	require.Empty(t, children(t, conn, node))
}

// A second ElectLeader changes nothing for the first.
func TestSecondElectLeader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	c, grant := lead(t, conn, node)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	c.quiet(t, calm)
	require.NoError(t, grant.Err())
	require.Equal(t, []string{base(c)}, children(t, conn, node))
}
