package zkproxy_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// TestExpireSession_EndsSessionAndDeletesEphemerals checks that neither the session nor its ephemeral znodes exist
// after ExpireSession, and that ExpireSession returns an error for a session that does not exist.
func TestExpireSession_EndsSessionAndDeletesEphemerals(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	id := h.Conn.SessionID()
	require.NoError(t, receive(t, h.create("/a", zk.FlagEphemeral)))
	require.NoError(t, h.proxy.ExpireSession(id))
	assert.False(t, h.exists(t, "/a"), "the ephemeral znode still exists")

	for receive(t, h.events).State != zk.StateExpired {
	}
	waitSession(t, h.Conn)
	assert.NotEqual(t, id, h.Conn.SessionID())
	assert.ErrorIs(t, h.proxy.ExpireSession(id), zkproxy.ErrSessionGone)
	assert.ErrorIs(t, h.proxy.ExpireSession(1), zkproxy.ErrUnknownSession)
}

// TestExpireSession_BypassesBlackhole checks that ExpireSession ends a session although a black hole discards all
// packets between the client and the server.
func TestExpireSession_BypassesBlackhole(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	require.NoError(t, receive(t, h.create("/a", zk.FlagEphemeral)))
	h.proxy.Blackhole(zkproxy.Both)
	require.NoError(t, h.proxy.ExpireSession(h.Conn.SessionID()))
	assert.False(t, h.exists(t, "/a"))
	h.proxy.Unblackhole()
	for receive(t, h.events).State != zk.StateExpired {
	}
}
