package zkproxy_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestBlackhole_StopsRequestsOfClient checks that the server receives no request during a black hole in both
// directions, nor after DropConnections when the black hole is over.
func TestBlackhole_StopsRequestsOfClient(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	h.proxy.Blackhole(zkproxy.Both)
	result := h.create("/a", 0)
	require.Error(t, receive(t, result), "the client must detect the timeout")
	assert.False(t, h.exists(t, "/a"))

	h.proxy.DropConnections() // DropConnections discards the request
	h.proxy.Unblackhole()
	waitSession(t, h.Conn)
	require.NoError(t, receive(t, h.create("/b", 0)))
	assert.False(t, h.exists(t, "/a"), "the lost request was delivered")
}

// TestBlackhole_StopsOnlyRepliesOfServer checks that the server receives requests while a black hole discards only
// the packets to the client.
func TestBlackhole_StopsOnlyRepliesOfServer(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	h.proxy.Blackhole(zkproxy.ServerToClient)
	result := h.create("/a", 0)
	require.Eventually(t, func() bool { return h.exists(t, "/a") }, testenv.WaitLimit, 5*time.Millisecond,
		"requests are stopped as well")
	require.Error(t, receive(t, result))

	h.proxy.Unblackhole()
	waitSession(t, h.Conn)
}

// TestBlackhole_HidesCloseOfClient checks that the server does not notice during a black hole that the client has
// closed the connection.
func TestBlackhole_HidesCloseOfClient(t *testing.T) {
	t.Parallel()
	accepted, p := fakeServer(t)
	client, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	_, err = client.Write([]byte("abcd"))
	require.NoError(t, err)
	end := receive(t, accepted)
	read := make([]byte, 100)
	_, err = io.ReadFull(end, read[:4])
	require.NoError(t, err)

	p.Blackhole(zkproxy.ClientToServer)
	_, err = client.Write([]byte("late"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, end.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = end.Read(read)
	require.ErrorContains(t, err, "timeout")

	p.Unblackhole()
	require.NoError(t, end.SetReadDeadline(time.Now().Add(testenv.WaitLimit)))
	rest, err := io.ReadAll(end)
	require.NoError(t, err)
	assert.Equal(t, "late", string(rest), "the bytes that were stopped must be delivered")
}

// TestDelay_DoesNotLimitRate checks that the delays of requests that are in flight at the same time do not add up.
func TestDelay_DoesNotLimitRate(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	const delay = 100 * time.Millisecond
	h.proxy.Delay(zkproxy.Both, delay)
	begin := time.Now()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, _, err := h.Conn.Get(node)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	took := time.Since(begin)
	assert.GreaterOrEqual(t, took, 2*delay)
	assert.Less(t, took, 30*delay, "the delays add up")

	h.proxy.Delay(zkproxy.Both, 0)
	require.Eventually(t, func() bool {
		begin := time.Now()
		_, _, err := h.Conn.Get(node)
		return err == nil && time.Since(begin) < delay
	}, testenv.WaitLimit, time.Millisecond)
}

// TestDropConnections_KeepsSession checks that the client reconnects with the same session after DropConnections.
func TestDropConnections_KeepsSession(t *testing.T) {
	t.Parallel()
	p := newProxy(t, startServer(t).Addr())
	conn, _ := connectFor(t, p.Addr(), longSession)
	waitSession(t, conn)
	id := conn.SessionID()
	p.DropConnections()
	require.Eventually(t, func() bool { return p.Count(zktest.OpConnect) == 2 },
		testenv.WaitLimit, 5*time.Millisecond)
	waitSession(t, conn)
	assert.Equal(t, id, conn.SessionID())
}

// TestRefuse_RejectsConnectionsUntilDisabled checks that the proxy refuses connections after Refuse(true), and
// accepts connections after Refuse(false).
func TestRefuse_RejectsConnectionsUntilDisabled(t *testing.T) {
	t.Parallel()
	p := newProxy(t, startServer(t).Addr())
	p.Refuse(true)
	client, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer client.Close()
		_, err = client.Read(make([]byte, 1))
	}
	require.Error(t, err)
	conn, _ := connect(t, p.Addr())
	p.Refuse(false)
	waitSession(t, conn)
}

// TestSetTarget_AppliesToNewConnections checks that the proxy connects new clients with the server that SetTarget
// has set.
func TestSetTarget_AppliesToNewConnections(t *testing.T) {
	t.Parallel()
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	unused := reserved.Addr().String()
	require.NoError(t, reserved.Close())

	p := newProxy(t, unused)
	assert.Equal(t, []bool{false}, zk.FLWRuok([]string{p.Addr()}, time.Second))
	p.SetTarget(startServer(t).Addr())
	assert.Equal(t, []bool{true}, zk.FLWRuok([]string{p.Addr()}, testenv.WaitLimit), "four-letter commands must be forwarded")
}

// TestClose_ReturnsWhileRuleAndBlackholeAreActive checks that Close returns although a rule holds a reply and a
// black hole is active.
func TestClose_ReturnsWhileRuleAndBlackholeAreActive(t *testing.T) {
	t.Parallel()
	h := newProxied(t)
	rule := h.proxy.On(zkproxy.Rule{Op: zktest.OpCreate, Action: zkproxy.HoldReply})
	result := h.create("/a", 0)
	receive(t, rule.Done())
	h.proxy.Blackhole(zkproxy.Both)
	h.proxy.Close()
	h.proxy.Close()
	require.Error(t, receive(t, result))
	_, err := net.Dial("tcp", h.proxy.Addr())
	require.Error(t, err)
}

// fakeServer starts a proxy whose target is a listener. The channel receives the connections that the listener
// accepts.
func fakeServer(t *testing.T) (<-chan net.Conn, *zkproxy.Proxy) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		close(accepted)
		for conn := range accepted {
			conn.Close()
		}
	})
	return accepted, newProxy(t, listener.Addr().String())
}
