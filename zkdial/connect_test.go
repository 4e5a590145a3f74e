package zkdial

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 4 * time.Second

// open opens a connection, which is closed when the test ends.
func open(t *testing.T, servers []string, timeout time.Duration, options ...Option) *zk.Conn {
	t.Helper()
	conn, _, err := Connect(servers, timeout, options...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// connect opens a connection to an embedded server, and waits for the session.
func connect(t *testing.T, srv *zktest.Server, options ...Option) *zk.Conn {
	t.Helper()
	return requireEstablished(t, open(t, []string{srv.Name()}, timeout, append([]Option{WithDialer(srv.Dialer())}, options...)...))
}

// requireEstablished waits until conn has a session, and returns conn.
func requireEstablished(t *testing.T, conn *zk.Conn) *zk.Conn {
	t.Helper()
	granted, err := Wait(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, Granted(conn), granted)
	return conn
}

// TestGranted_ReturnsTimeoutOfAnyConnection checks that Granted returns 0 before the first session and then the
// timeout that the server has granted, for connections of this package and of zk.Connect.
func TestGranted_ReturnsTimeoutOfAnyConnection(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *zktest.Server) *zk.Conn{
		"by Connect": func(t *testing.T, srv *zktest.Server) *zk.Conn {
			return open(t, []string{srv.Name()}, timeout, WithDialer(srv.Dialer()))
		},
		"by zk.Connect": func(t *testing.T, srv *zktest.Server) *zk.Conn {
			conn, _, err := srv.Connect(timeout)
			require.NoError(t, err)
			t.Cleanup(conn.Close)
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
				hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
				conn := open(t, srv)
				time.Sleep(10 * time.Millisecond)
				require.Zero(t, Granted(conn), "there is no session yet")
				hook.Remove()
				require.Equal(t, 2*time.Second, Granted(requireEstablished(t, conn)))
			})
		})
	}
}

// TestGranted_PrefersTimeoutOfHandshake checks that Granted returns the timeout that the dialer has read from
// the handshake, and not that of the private field of the client library.
func TestGranted_PrefersTimeoutOfHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		connection.RecordOf(conn).Push(connection.Event{Timeout: 7 * time.Second})
		require.Equal(t, 7*time.Second, Granted(conn))
	})
}

// TestConnect_RejectsInvalidArguments checks that Connect rejects an invalid list of servers, an invalid
// session timeout and options with nil.
func TestConnect_RejectsInvalidArguments(t *testing.T) {
	for name, c := range map[string]struct {
		servers []string
		timeout time.Duration
		option  Option
		want    error
	}{
		"chroot":     {[]string{"a:1/b"}, timeout, WithLogger(slog.Default()), ErrServers},
		"no server":  {nil, timeout, WithLogger(slog.Default()), ErrServers},
		"too short":  {[]string{"a"}, 99 * time.Millisecond, WithLogger(slog.Default()), connection.ErrInvalid},
		"too long":   {[]string{"a"}, 1 << 31 * time.Millisecond, WithLogger(slog.Default()), connection.ErrInvalid},
		"nil option": {[]string{"a"}, timeout, nil, connection.ErrInvalid},
		"nil dialer": {[]string{"a"}, timeout, WithDialer(nil), connection.ErrInvalid},
		"nil log":    {[]string{"a"}, timeout, WithLogger(nil), connection.ErrInvalid},
		"nil client": {[]string{"a"}, timeout, WithClient(nil), connection.ErrInvalid},
	} {
		_, _, err := Connect(c.servers, c.timeout, c.option)
		require.ErrorIs(t, err, c.want, name)
	}
}

// TestConnect_AcceptsLongestTimeout checks that a connection with the longest permitted session timeout gets a
// session.
func TestConnect_AcceptsLongestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 10*time.Second))
		conn := requireEstablished(t, open(t, []string{srv.Name()}, longestTimeout, WithDialer(srv.Dialer())))
		require.Equal(t, 10*time.Second, Granted(conn))
	})
}

// TestWait_ErrorNamesTheServer checks that the error of Wait contains the server that has failed and the
// reason.
func TestWait_ErrorNamesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		wait := func(options ...Option) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := Wait(ctx, open(t, []string{"zk.example:2181"}, timeout, append(options, WithDialer(srv.Dialer()))...))
			require.ErrorIs(t, err, connection.ErrUnreachable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
		srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		require.ErrorContains(t, wait(), "zk.example:2181: the server closed the connection before it answered")
		srv.Stop()
		require.ErrorContains(t, wait(), "zk.example:2181: dial zktest")
	})
}

// TestConnect_RejectsUnknownAuthority checks that a connection over TLS gets a session if the authority of the
// certificate is trusted, and that an unknown authority is rejected.
func TestConnect_RejectsUnknownAuthority(t *testing.T) {
	srv := zktest.Start(t)
	a := testenv.NewAuthority(t)
	addr, _ := testenv.StartTLSProxy(t, a.Config("127.0.0.1"), srv.Addr())
	trusted := open(t, []string{addr}, 10*time.Second, WithTLS(&tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12}))
	require.Equal(t, 10*time.Second, Granted(requireEstablished(t, trusted)))

	d := &dialer{tls: &tls.Config{MinVersion: tls.VersionTLS12}, open: net.DialTimeout}
	_, err := d.connect("tcp", addr, 10*time.Second)
	require.ErrorContains(t, err, "certificate")
}

// TestConnect_RejectsHugeReplyOfForeignServer checks that the client library closes the connection, instead of
// waiting, if a program that is not a ZooKeeper server announces a packet of 1 GiB.
func TestConnect_RejectsHugeReplyOfForeignServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	open(t, []string{listener.Addr().String()}, time.Hour, WithLogger(slog.New(slog.DiscardHandler)))
	server, err := listener.Accept()
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, server.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadFull(server, make([]byte, 48)) // the client's request for a session
	require.NoError(t, err)
	var e wire.Encoder
	start := e.Begin()
	e.ConnectReply(&wire.ConnectReply{Timeout: 3_600_000, Session: 1, Password: make([]byte, 16)})
	e.End(start)
	e.Int(1 << 30) // the length of a packet that never arrives
	_, err = server.Write(e.B)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, server)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the client waits for a gigabyte")
}
