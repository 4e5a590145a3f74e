package zkproxy_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestExpireSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.conn.SessionID()
	require.NoError(t, receive(t, b.create("/a", zk.FlagEphemeral)))
	require.NoError(t, b.proxy.ExpireSession(id))
	assert.False(t, b.exists(t, "/a"), "the ephemeral node is still there")

	for receive(t, b.events).State != zk.StateExpired {
	}
	waitSession(t, b.conn)
	assert.NotEqual(t, id, b.conn.SessionID())
	assert.ErrorIs(t, b.proxy.ExpireSession(id), zkproxy.ErrSessionGone)
	assert.ErrorIs(t, b.proxy.ExpireSession(1), zkproxy.ErrUnknownSession)
}

func TestExpireSessionBehindBlackHole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, receive(t, b.create("/a", zk.FlagEphemeral)))
	b.proxy.Blackhole(zkproxy.Both)
	require.NoError(t, b.proxy.ExpireSession(b.conn.SessionID()))
	assert.False(t, b.exists(t, "/a"))
	b.proxy.Unblackhole()
	for receive(t, b.events).State != zk.StateExpired {
	}
}
