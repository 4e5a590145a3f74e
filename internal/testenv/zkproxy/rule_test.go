package zkproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestCutBeforeRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.CutBeforeRequest})
	require.Error(t, receive(t, b.create("/a", 0)))
	receive(t, rule.Done())
	assert.False(t, b.exists(t, "/a"), "the request was applied")

	waitSession(t, b.conn)
	require.NoError(t, receive(t, b.create("/a", 0)), "the rule applied twice")
}

func TestCutAfterApplied(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.CutAfterApplied})
	require.ErrorIs(t, receive(t, b.create("/a", 0)), zk.ErrConnectionClosed)
	receive(t, rule.Done())
	assert.True(t, b.exists(t, "/a"), "the request was not applied")
}

func TestDropReplyBlackhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.DropReplyBlackhole})
	outcome := b.create("/a", zk.FlagEphemeral)
	receive(t, rule.Done())
	requirePending(t, outcome)
	assert.True(t, b.exists(t, "/a"))

	// The client gives up by itself, and a new connection is no black hole.
	require.Error(t, receive(t, outcome))
	waitSession(t, b.conn)
	assert.Greater(t, b.proxy.Count(zkproxy.OpConnect), 1)
	rule.Release()
}

func TestReleaseEndsTheBlackHole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// A client that does not find out by itself soon.
	b.conn, b.events = connectFor(t, b.proxy.Addr(), longSession)
	waitSession(t, b.conn)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.DropReplyBlackhole})
	outcome := b.create("/a", 0)
	receive(t, rule.Done())
	begin := time.Now()
	rule.Release()
	rule.Release()
	require.ErrorIs(t, receive(t, outcome), zk.ErrConnectionClosed)
	assert.Less(t, time.Since(begin), longSession/3, "the client had to find out by itself")
}

func TestHoldReply(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.HoldReply})
	outcome := b.create("/a", 0)
	receive(t, rule.Done())
	assert.True(t, b.exists(t, "/a"))
	requirePending(t, outcome)
	rule.Release()
	require.NoError(t, receive(t, outcome))
}

func TestRuleForTheKthMatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{
		Op: zkproxy.OpCreate, K: 2, Action: zkproxy.CutBeforeRequest,
		Path: func(path string) bool { return path != b.root+"/other" },
	})
	require.NoError(t, receive(t, b.create("/first", 0)))
	require.NoError(t, receive(t, b.create("/other", 0)))
	requirePending(t, rule.Done())
	require.Error(t, receive(t, b.create("/second", 0)))
	receive(t, rule.Done())
}

func TestRuleForAnyRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Pings come by themselves and must not use the rule up.
	before := b.proxy.Count(zkproxy.OpPing)
	rule := b.proxy.On(zkproxy.Rule{Action: zkproxy.CutBeforeRequest})
	require.Eventually(t, func() bool { return b.proxy.Count(zkproxy.OpPing) > before },
		patience, 10*time.Millisecond)
	requirePending(t, rule.Done())
	_, _, err := b.conn.Get(b.root)
	require.Error(t, err)
	receive(t, rule.Done())
}

func TestRuleForMulti(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{
		Op: zkproxy.OpMulti, Action: zkproxy.CutAfterApplied,
		Path: func(path string) bool { return path == b.root+"/a" },
	})
	_, err := b.conn.Multi(
		&zk.CreateRequest{Path: b.root + "/a", Acl: zk.WorldACL(zk.PermAll)},
		&zk.CreateRequest{Path: b.root + "/b", Acl: zk.WorldACL(zk.PermAll)},
	)
	require.Error(t, err)
	receive(t, rule.Done())
	assert.True(t, b.exists(t, "/b"))
}

func TestWithdrawnRule(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.CutBeforeRequest})
	rule.Release()
	require.NoError(t, receive(t, b.create("/a", 0)))
	requirePending(t, rule.Done())
}

// TestRuleForTheHandshake holds back the answer that gives a client its
// session.
func TestRuleForTheHandshake(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server)
	rule := p.On(zkproxy.Rule{Op: zkproxy.OpConnect, Action: zkproxy.HoldReply})
	conn, _ := connect(t, p.Addr())
	receive(t, rule.Done())
	assert.NotEqual(t, zk.StateHasSession, conn.State())
	rule.Release()
	waitSession(t, conn)
}
