package zkproxy_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.conn.SessionID()
	require.Equal(t, 1, b.proxy.Count(zkproxy.OpConnect))
	require.Equal(t, 0, b.proxy.Count(zkproxy.OpAny))

	b.proxy.ResetLog()
	_, _, watch, err := b.conn.GetW(b.root)
	require.NoError(t, err)
	_, err = b.direct.Set(b.root, []byte("x"), -1)
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeDataChanged, receive(t, watch).Type)
	require.ErrorIs(t, b.conn.Delete(b.root+"/none", -1), zk.ErrNoNode)
	assert.Equal(t, 1, b.proxy.Count(zkproxy.OpGetData))
	assert.Equal(t, 2, b.proxy.Count(zkproxy.OpAny))

	var log []zkproxy.Record
	for _, r := range b.proxy.Log() {
		assert.NotZero(t, r.Time)
		assert.Equal(t, 1, r.Conn)
		assert.Equal(t, id, r.Session)
		assert.NotEmpty(t, r.String())
		if r.Op != zkproxy.OpPing {
			log = append(log, r)
		}
	}
	require.Len(t, log, 5)
	assert.Equal(t, zkproxy.Request, log[0].Kind)
	assert.Equal(t, zkproxy.OpGetData, log[0].Op)
	assert.Equal(t, b.root, log[0].Path)

	assert.Equal(t, zkproxy.Reply, log[1].Kind)
	assert.Equal(t, zkproxy.OpGetData, log[1].Op)
	assert.Equal(t, log[0].Xid, log[1].Xid)
	assert.Positive(t, log[1].Zxid)

	assert.Equal(t, zkproxy.Event, log[2].Kind)
	assert.Equal(t, b.root, log[2].Path)
	assert.Equal(t, int32(zk.EventNodeDataChanged), log[2].EventType)

	assert.Equal(t, zkproxy.Reply, log[4].Kind)
	assert.Equal(t, b.root+"/none", log[4].Path)
	assert.Equal(t, int32(-101), log[4].Err)
}

func TestLogOfDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.CutAfterApplied})
	require.Error(t, receive(t, b.create("/a", 0)))
	waitSession(t, b.conn)
	b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.CutBeforeRequest})
	require.Error(t, receive(t, b.create("/b", 0)))

	var dropped []zkproxy.Record
	for _, r := range b.proxy.Log() {
		if r.Dropped {
			dropped = append(dropped, r)
		}
	}
	require.Len(t, dropped, 2)
	assert.Equal(t, zkproxy.Reply, dropped[0].Kind)
	assert.Equal(t, b.root+"/a", dropped[0].Path)
	assert.Equal(t, zkproxy.Request, dropped[1].Kind)
	assert.Equal(t, b.root+"/b", dropped[1].Path)
	assert.Equal(t, 2, b.proxy.Count(zkproxy.OpCreate))
}
