package testenv_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// startEchoServer starts a server that accepts one connection and returns what it receives.
func startEchoServer(t *testing.T) (addr string) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	t.Cleanup(func() {
		echo.Close()
		<-done
	})
	return echo.Addr().String()
}

// proxyClient is a connection to an echo server through a proxy.
type proxyClient struct {
	t    *testing.T
	conn net.Conn
}

func connectProxy(t *testing.T, cfg testenv.ProxyConfig) (*testenv.Proxy, proxyClient) {
	p, err := testenv.NewProxy(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return p, proxyClient{t, conn}
}

func (c proxyClient) send() {
	_, err := c.conn.Write([]byte("x"))
	require.NoError(c.t, err)
}

// receive reads one byte, or returns an error after the time limit.
func (c proxyClient) receive(limit time.Duration) error {
	_ = c.conn.SetReadDeadline(time.Now().Add(limit))
	_, err := c.conn.Read(make([]byte, 1))
	return err
}

// TestProxy_CutDelaysBytes checks that Cut and CutAnswers hold back all bytes until Heal, that Heal loses none of
// these bytes, and that Drop closes the connection.
func TestProxy_CutDelaysBytes(t *testing.T) {
	p, c := connectProxy(t, testenv.ProxyConfig{Target: startEchoServer(t)})
	c.send()
	require.NoError(t, c.receive(10*time.Second))
	for _, cut := range []func(){p.Cut, p.CutAnswers} {
		cut()
		c.send()
		require.ErrorIs(t, c.receive(100*time.Millisecond), os.ErrDeadlineExceeded)
		p.Heal()
		require.NoError(t, c.receive(10*time.Second))
	}
	p.Drop()
	require.ErrorIs(t, c.receive(10*time.Second), io.EOF)
}

// TestProxy_CloseEndsConnectionsWhileCut checks that Close closes the connections of a proxy that is cut, without a
// call of Heal.
func TestProxy_CloseEndsConnectionsWhileCut(t *testing.T) {
	p, c := connectProxy(t, testenv.ProxyConfig{Target: startEchoServer(t)})
	c.send()
	require.NoError(t, c.receive(10*time.Second))
	p.Cut()
	c.send()
	p.Close()
	err := c.receive(10 * time.Second)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestProxy_CopiesFirstBytesWithCopyHead checks that the proxy copies the first bytes of a connection with
// CopyHead, and closes the connection if CopyHead returns an error.
func TestProxy_CopiesFirstBytesWithCopyHead(t *testing.T) {
	_, c := connectProxy(t, testenv.ProxyConfig{
		Target: startEchoServer(t),
		CopyHead: func(to io.Writer, from io.Reader) error {
			if _, err := io.ReadFull(from, make([]byte, 2)); err != nil {
				return err
			}
			_, err := to.Write([]byte("head"))
			return err
		},
	})
	c.send()
	c.send()
	c.send()
	answer := make([]byte, 5)
	_, err := io.ReadFull(c.conn, answer)
	require.NoError(t, err)
	require.Equal(t, "headx", string(answer))

	_, c = connectProxy(t, testenv.ProxyConfig{
		Target:   startEchoServer(t),
		CopyHead: func(io.Writer, io.Reader) error { return errors.New("rejected") },
	})
	require.ErrorIs(t, c.receive(10*time.Second), io.EOF)
}

// TestProxy_ClosesIdleConnection checks that the proxy closes a connection that is idle for longer than the limit.
func TestProxy_ClosesIdleConnection(t *testing.T) {
	p, err := testenv.NewProxy(testenv.ProxyConfig{Target: startEchoServer(t)})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.SetIdleLimit(100 * time.Millisecond)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.ErrorIs(t, proxyClient{t, conn}.receive(10*time.Second), io.EOF)
}
