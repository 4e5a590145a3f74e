package zkproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRule_CutBeforeRequest checks that the request is not applied, and that the rule does not apply to a
// second request.
func TestRule_CutBeforeRequest(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutBeforeRequest})
	require.Error(t, receive(t, h.create("/a", 0)))
	receive(t, rule.Done())
	assert.False(t, h.exists(t, "/a"), "the request was applied")

	waitSession(t, h.Conn)
	require.NoError(t, receive(t, h.create("/a", 0)), "the rule applied twice")
}

// TestRule_CutAfterApplied checks that the request is applied, and that the client does not receive a reply.
func TestRule_CutAfterApplied(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutAfterApplied})
	require.ErrorIs(t, receive(t, h.create("/a", 0)), zk.ErrConnectionClosed)
	receive(t, rule.Done())
	assert.True(t, h.exists(t, "/a"), "the request was not applied")
}

// TestRule_DropReplyBlackhole checks that the client does not receive a reply, and that its next connection
// is not a black hole.
func TestRule_DropReplyBlackhole(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.DropReplyBlackhole})
	result := h.create("/a", zk.FlagEphemeral)
	receive(t, rule.Done())
	requirePending(t, result)
	assert.True(t, h.exists(t, "/a"))

	// The client detects the timeout, and its next connection is not a black hole.
	require.Error(t, receive(t, result))
	waitSession(t, h.Conn)
	assert.Greater(t, h.proxy.Count(zktest.OpConnect), 1)
	rule.Release()
}

// TestRule_ReleaseClosesBlackHole checks that the client detects after Release, and not only by its timeout,
// that the connection is dead.
func TestRule_ReleaseClosesBlackHole(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	// With this timeout, the client would detect the black hole late.
	h.Conn, h.events = connectFor(t, h.proxy.Addr(), longSession)
	waitSession(t, h.Conn)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.DropReplyBlackhole})
	result := h.create("/a", 0)
	receive(t, rule.Done())
	start := time.Now()
	rule.Release()
	rule.Release()
	require.ErrorIs(t, receive(t, result), zk.ErrConnectionClosed)
	assert.Less(t, time.Since(start), longSession/3, "the client has waited for its timeout")
}

// TestRule_HoldReply checks that the reply is not forwarded before Release, and not lost.
func TestRule_HoldReply(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.HoldReply})
	result := h.create("/a", 0)
	receive(t, rule.Done())
	assert.True(t, h.exists(t, "/a"))
	requirePending(t, result)
	rule.Release()
	require.NoError(t, receive(t, result))
}

// TestRule_CountsOnlyMatches checks that the rule counts only requests whose path matches.
func TestRule_CountsOnlyMatches(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{
		Op: zktest.OpCreate, K: 2, Action: zkproxy.CutBeforeRequest,
		Path: func(path string) bool { return path != "/other" },
	})
	require.NoError(t, receive(t, h.create("/first", 0)))
	require.NoError(t, receive(t, h.create("/other", 0)))
	requirePending(t, rule.Done())
	require.Error(t, receive(t, h.create("/second", 0)))
	receive(t, rule.Done())
}

// TestRule_OpAnyIgnoresPings checks that a ping does not match OpAny.
func TestRule_OpAnyIgnoresPings(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	// The client sends pings when it sends nothing else.
	before := h.proxy.Count(zktest.OpPing)
	rule := h.proxy.On(zkproxy.Rule{Action: zkproxy.CutBeforeRequest})
	require.Eventually(t, func() bool { return h.proxy.Count(zktest.OpPing) > before },
		waitLimit, 10*time.Millisecond)
	requirePending(t, rule.Done())
	_, _, err := h.Conn.Get(node)
	require.Error(t, err)
	receive(t, rule.Done())
}

// TestRule_PathOfMulti checks that the path of a multi is that of its first operation.
func TestRule_PathOfMulti(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{
		Op: zktest.OpMulti, Action: zkproxy.CutAfterApplied,
		Path: func(path string) bool { return path == "/a" },
	})
	_, err := h.Conn.Multi(
		&zk.CreateRequest{Path: "/a", Acl: zk.WorldACL(zk.PermAll)},
		&zk.CreateRequest{Path: "/b", Acl: zk.WorldACL(zk.PermAll)},
	)
	require.Error(t, err)
	receive(t, rule.Done())
	assert.True(t, h.exists(t, "/b"))
}

// TestRule_ReleasedBeforeMatch checks that a rule does not apply after it was released.
func TestRule_ReleasedBeforeMatch(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutBeforeRequest})
	rule.Release()
	require.NoError(t, receive(t, h.create("/a", 0)))
	requirePending(t, rule.Done())
}

// TestRule_Handshake checks that the client has no session while the reply to its handshake is held.
func TestRule_Handshake(t *testing.T) {
	t.Parallel()
	p := newProxy(t, startServer(t).Addr())
	rule := p.On(zkproxy.Rule{Op: zktest.OpConnect, Action: zkproxy.HoldReply})
	conn, _ := connect(t, p.Addr())
	receive(t, rule.Done())
	assert.NotEqual(t, zk.StateHasSession, conn.State())
	rule.Release()
	waitSession(t, conn)
}
