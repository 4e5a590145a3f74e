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

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestBlackholeBoth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.proxy.Blackhole(zkproxy.Both)
	outcome := b.create("/a", 0)
	require.Error(t, receive(t, outcome), "the client should give up by itself")
	assert.False(t, b.exists(t, "/a"))

	b.proxy.DropConnections() // what is on its way is to be lost
	b.proxy.Unblackhole()
	waitSession(t, b.conn)
	require.NoError(t, receive(t, b.create("/b", 0)))
	assert.False(t, b.exists(t, "/a"), "the lost request came through")
}

func TestBlackholeOneWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.proxy.Blackhole(zkproxy.ServerToClient)
	outcome := b.create("/a", 0)
	require.Eventually(t, func() bool { return b.exists(t, "/a") }, patience, 5*time.Millisecond,
		"requests no longer come through")
	require.Error(t, receive(t, outcome))

	b.proxy.Unblackhole()
	waitSession(t, b.conn)
}

// TestBlackholeHidesTheEnd shows that a server does not learn of a client that
// is gone.
func TestBlackholeHidesTheEnd(t *testing.T) {
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
	require.NoError(t, end.SetReadDeadline(time.Now().Add(patience)))
	rest, err := io.ReadAll(end)
	require.NoError(t, err)
	assert.Equal(t, "late", string(rest), "what was held back must come through at last")
}

func TestDelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const delay = 100 * time.Millisecond
	b.proxy.Delay(zkproxy.Both, delay)
	begin := time.Now()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, _, err := b.conn.Get(b.root)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	took := time.Since(begin)
	assert.GreaterOrEqual(t, took, 2*delay)
	assert.Less(t, took, 30*delay, "the delays add up")

	b.proxy.Delay(zkproxy.Both, 0)
	require.Eventually(t, func() bool {
		begin := time.Now()
		_, _, err := b.conn.Get(b.root)
		return err == nil && time.Since(begin) < delay
	}, patience, time.Millisecond)
}

func TestDropConnections(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server)
	conn, _ := connectFor(t, p.Addr(), longSession)
	waitSession(t, conn)
	id := conn.SessionID()
	p.DropConnections()
	require.Eventually(t, func() bool { return p.Count(zkproxy.OpConnect) == 2 },
		patience, 5*time.Millisecond)
	waitSession(t, conn)
	assert.Equal(t, id, conn.SessionID())
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server)
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

func TestSetTarget(t *testing.T) {
	t.Parallel()
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := reserved.Addr().String()
	require.NoError(t, reserved.Close())

	p := newProxy(t, nobody)
	assert.Equal(t, []bool{false}, zk.FLWRuok([]string{p.Addr()}, time.Second))
	p.SetTarget(server)
	assert.Equal(t, []bool{true}, zk.FLWRuok([]string{p.Addr()}, patience), "four-letter commands must pass")
}

func TestCloseWithOpenConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rule := b.proxy.On(zkproxy.Rule{Op: zkproxy.OpCreate, Action: zkproxy.HoldReply})
	outcome := b.create("/a", 0)
	receive(t, rule.Done())
	b.proxy.Blackhole(zkproxy.Both)
	b.proxy.Close()
	b.proxy.Close()
	require.Error(t, receive(t, outcome))
	_, err := net.Dial("tcp", b.proxy.Addr())
	require.Error(t, err)
}

// fakeServer gives a proxy and the connections that come out of it.
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
