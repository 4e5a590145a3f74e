package integrationtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// Trap 5: the delete fails with the connection, the session lives on, and the
// own stale znode blocks everybody.
func TestTrap05_DeleteReplyLost(t *testing.T) {
	t.Parallel()
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
			node := newNode(t, admin)
			c, l := lead(t, conn, node)
			next := follow(t, admin, node, c)
			session := conn.SessionID()
			rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpDelete, Path: under(node), Action: cut.action})

			begin := time.Now()
			err := c.Resign()
			require.Less(t, time.Since(begin), confirmed)
			if err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			await(t, rule.Done(), "the fault")
			require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
			c.closesSilently(t)
			next.leads(t)
			require.Equal(t, []string{base(next)}, children(t, admin, node))
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session's end is no solution")
		})
	}
}

// Trap 5, for a follower.
func TestTrap05_DeleteReplyLostByFollower(t *testing.T) {
	t.Parallel()
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
			node := newNode(t, admin)
			leader, l := lead(t, admin, node)
			c := follow(t, conn, node, leader)
			last := follow(t, admin, node, c)
			session := conn.SessionID()
			own := c.ID()
			rule := conn.link[0].On(zkproxy.Rule{
				Op: zkproxy.OpDelete, Action: cut.action,
				Path: func(path string) bool { return path == own },
			})

			if err := c.Resign(); err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			await(t, rule.Done(), "the fault")
			last.follows(t, leader)
			require.Len(t, children(t, admin, node), 2)
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session's end is no solution")
			require.NoError(t, l.Err())
			leader.quiet(t, 0)
		})
	}
}

// Trap 5, with a link that is dead from before the delete until after the
// candidacy's end.
func TestTrap05_DeleteIntoBlackHole(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	c, _ := lead(t, conn, node)
	next := follow(t, admin, node, c)
	session := conn.SessionID()

	conn.link.freeze()
	begin := time.Now()
	require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), confirmed)
	c.closesSilently(t)
	require.NoError(t, c.result(t))
	require.True(t, exists(t, admin, c.ID()))
	next.quiet(t, 0)

	conn.link.restore()
	next.leads(t)
	electiontest.Confirm(t, c.Resign)
	require.Equal(t, session, conn.SessionID(), "the session's end is no solution")
}

// Trap 6: the cleanup uses the context whose end has caused it, and does
// nothing.
func TestTrap06_CleanupAfterContext(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)
	session := conn.SessionID()

	t.Run("connected", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, l := lead(t, conn, node, leaderelection.WithContext(ctx))
		cancel()
		ends(t, l, leaderelection.ErrResigned)
		require.NoError(t, c.result(t))
		require.Empty(t, children(t, admin, node))
	})
	t.Run("disconnected", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, l := lead(t, conn, node, leaderelection.WithContext(ctx))
		conn.link.cut()
		cancel()
		ends(t, l, leaderelection.ErrResigned)
		require.NoError(t, c.result(t))
		require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
		require.True(t, exists(t, admin, c.ID()))
		conn.link.restore()
		waitGone(t, admin, c.ID())
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("during the create", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: under(node), Action: zkproxy.HoldReply})
		c := enlist(t, conn, node, leaderelection.WithContext(ctx))
		await(t, rule.Done(), "the fault")
		cancel()
		require.NoError(t, c.result(t))
		require.Len(t, children(t, admin, node), 1)
		rule.Release()
		electiontest.Confirm(t, c.Resign)
		require.Empty(t, children(t, admin, node))
	})
	require.Equal(t, session, conn.SessionID(), "the session's end is no solution")
}

// Trap 44: a stale end deletes what belongs to a newer candidacy.
func TestTrap44_StaleResign(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectTo(t, shortTimeout, shared.Addr(0))
	node := newNode(t, admin)

	// The delete of the first stays open while the second joins on the same
	// connection, and goes on when the second leads already.
	old, _ := lead(t, conn, node)
	c := newCandidate(t, conn, node)
	rule := conn.link[0].On(zkproxy.Rule{Op: zkproxy.OpDelete, Path: under(node), Action: zkproxy.CutBeforeRequest})
	conn.link.refuse()
	require.ErrorIs(t, old.Resign(), leaderelection.ErrUnconfirmed)
	await(t, rule.Done(), "the fault")
	c.start()
	t.Cleanup(func() { _ = c.Resign() })
	remove(t, admin, old.ID())
	conn.link.restore()
	l := c.leads(t)

	for range 3 {
		electiontest.Confirm(t, old.Resign)
	}
	_, err := old.Multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader, "the old one's path is gone, and it does not lead by the new one's")
	onlyChild(t, admin, node, c, conn)
	require.NoError(t, l.Err())
	c.quiet(t, calm)
}
