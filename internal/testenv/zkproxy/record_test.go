package zkproxy_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLog_RecordsMessages checks that the log of the proxy contains requests, replies and watch events, with their
// fields.
func TestLog_RecordsMessages(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	id := h.Conn.SessionID()
	require.Equal(t, 1, h.proxy.Count(zktest.OpConnect))
	require.Equal(t, 0, h.proxy.Count(zkproxy.OpAny))

	h.proxy.ResetLog()
	_, _, watch, err := h.Conn.GetW(node)
	require.NoError(t, err)
	_, err = h.Operator.Set(node, []byte("x"), -1)
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeDataChanged, receive(t, watch).Type)
	require.ErrorIs(t, h.Conn.Delete("/none", -1), zk.ErrNoNode)
	assert.Equal(t, 1, h.proxy.Count(zktest.OpGetData))
	assert.Equal(t, 2, h.proxy.Count(zkproxy.OpAny))

	var log []zkproxy.Record
	for _, r := range h.proxy.Log() {
		assert.NotZero(t, r.Time)
		assert.Equal(t, 1, r.Conn)
		assert.Equal(t, id, r.Session)
		assert.NotEmpty(t, r.String())
		if r.Op != zktest.OpPing {
			log = append(log, r)
		}
	}
	require.Len(t, log, 5)
	assert.Equal(t, zkproxy.Request, log[0].Kind)
	assert.Equal(t, zktest.OpGetData, log[0].Op)
	assert.Equal(t, node, log[0].Path)

	assert.Equal(t, zkproxy.Reply, log[1].Kind)
	assert.Equal(t, zktest.OpGetData, log[1].Op)
	assert.Equal(t, log[0].Xid, log[1].Xid)
	assert.Positive(t, log[1].Zxid)

	assert.Equal(t, zkproxy.Event, log[2].Kind)
	assert.Equal(t, node, log[2].Path)
	assert.Equal(t, int32(zk.EventNodeDataChanged), log[2].EventType)

	assert.Equal(t, zkproxy.Reply, log[4].Kind)
	assert.Equal(t, "/none", log[4].Path)
	assert.Equal(t, int32(-101), log[4].Err)
}

// TestLog_MarksDroppedMessages checks that Dropped is set in the record of each message that a rule has dropped.
func TestLog_MarksDroppedMessages(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutAfterApplied})
	require.Error(t, receive(t, h.create("/a", 0)))
	waitSession(t, h.Conn)
	h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.CutBeforeRequest})
	require.Error(t, receive(t, h.create("/b", 0)))

	var dropped []zkproxy.Record
	for _, r := range h.proxy.Log() {
		if r.Dropped {
			dropped = append(dropped, r)
		}
	}
	require.Len(t, dropped, 2)
	assert.Equal(t, zkproxy.Reply, dropped[0].Kind)
	assert.Equal(t, "/a", dropped[0].Path)
	assert.Equal(t, zkproxy.Request, dropped[1].Kind)
	assert.Equal(t, "/b", dropped[1].Path)
	assert.Equal(t, 2, h.proxy.Count(zktest.OpCreate))
}
