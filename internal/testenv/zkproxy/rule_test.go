package zkproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCutBeforeRequest_DropsOneRequest checks that the server does not receive the request that a rule with
// CutBeforeRequest matches, and that the rule does not apply to a second request.
func TestCutBeforeRequest_DropsOneRequest(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutBeforeRequest})
	require.Error(t, receive(t, h.create("/a", 0)))
	receive(t, rule.Done())
	assert.False(t, h.exists(t, "/a"), "the request was applied")

	waitSession(t, h.Conn)
	require.NoError(t, receive(t, h.create("/a", 0)), "the rule applied twice")
}

// TestCutAfterApplied_DropsReplyOfAppliedRequest checks that the server applies the request that a rule with
// CutAfterApplied matches, and that the client receives no reply.
func TestCutAfterApplied_DropsReplyOfAppliedRequest(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutAfterApplied})
	require.ErrorIs(t, receive(t, h.create("/a", 0)), zk.ErrConnectionClosed)
	receive(t, rule.Done())
	assert.True(t, h.exists(t, "/a"), "the request was not applied")
}

// TestDropReplyBlackhole_SparesNextConnection checks that the client receives no reply to the request that a rule
// with DropReplyBlackhole matches, and that the next connection of the client is not a black hole.
func TestDropReplyBlackhole_SparesNextConnection(t *testing.T) {
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

// TestRelease_ClosesConnectionInBlackhole checks that Release closes the connection that is a black hole, so that
// the client detects the loss of the connection before its timeout.
func TestRelease_ClosesConnectionInBlackhole(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	// With this long timeout, the client would detect the black hole late without Release.
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

// TestHoldReply_ForwardsReplyAfterRelease checks that a rule with HoldReply forwards the reply after Release and
// not before.
func TestHoldReply_ForwardsReplyAfterRelease(t *testing.T) {
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

// TestRule_CountsOnlyMatchingRequests checks that K counts only the requests whose path the rule matches.
func TestRule_CountsOnlyMatchingRequests(t *testing.T) {
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

// TestRule_OpAnyIgnoresPings checks that a rule for OpAny does not match pings.
func TestRule_OpAnyIgnoresPings(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	// A client sends pings while it sends nothing else.
	before := h.proxy.Count(zktest.OpPing)
	rule := h.proxy.On(zkproxy.Rule{Action: zkproxy.CutBeforeRequest})
	require.Eventually(t, func() bool { return h.proxy.Count(zktest.OpPing) > before },
		testenv.WaitLimit, 10*time.Millisecond)
	requirePending(t, rule.Done())
	_, _, err := h.Conn.Get(node)
	require.Error(t, err)
	receive(t, rule.Done())
}

// TestRule_MatchesPathOfFirstOperationOfMulti checks that a rule compares the path of the first operation of a
// multi.
func TestRule_MatchesPathOfFirstOperationOfMulti(t *testing.T) {
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

// TestRule_DoesNothingAfterRelease checks that a rule does not apply to requests that the client sends after
// Release.
func TestRule_DoesNothingAfterRelease(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutBeforeRequest})
	rule.Release()
	require.NoError(t, receive(t, h.create("/a", 0)))
	requirePending(t, rule.Done())
}

// TestRule_HoldsReplyToHandshake checks that the client has no session while a rule holds the reply to the
// handshake.
func TestRule_HoldsReplyToHandshake(t *testing.T) {
	t.Parallel()
	p := newProxy(t, startServer(t).Addr())
	rule := p.On(zkproxy.Rule{Op: zktest.OpConnect, Action: zkproxy.HoldReply})
	conn, _ := connect(t, p.Addr())
	receive(t, rule.Done())
	assert.NotEqual(t, zk.StateHasSession, conn.State())
	rule.Release()
	waitSession(t, conn)
}
