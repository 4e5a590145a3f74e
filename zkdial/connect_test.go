package zkdial

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second

// connect opens a connection in a bubble.
func connect(t *testing.T, srv *zktest.Server, options ...Option) *zk.Conn {
	t.Helper()
	conn, _, err := Connect([]string{srv.Name()}, timeout, append(options, WithDialer(srv.Dialer()))...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	_, err = Wait(t.Context(), conn)
	require.NoError(t, err)
	return conn
}

func TestGranted(t *testing.T) {
	for name, open := range map[string]func(*zktest.Server) (*zk.Conn, error){
		"by Connect": func(srv *zktest.Server) (*zk.Conn, error) {
			conn, _, err := Connect([]string{srv.Name()}, timeout, WithDialer(srv.Dialer()))
			return conn, err
		},
		"by zk.Connect": func(srv *zktest.Server) (*zk.Conn, error) {
			conn, _, err := srv.Connect(timeout)
			return conn, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
				hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
				conn, err := open(srv)
				require.NoError(t, err)
				t.Cleanup(conn.Close)
				time.Sleep(10 * time.Millisecond)
				require.Zero(t, Granted(conn), "before there is a session")
				hook.Remove()
				granted, err := Wait(t.Context(), conn)
				require.NoError(t, err)
				require.Equal(t, 2*time.Second, granted)
				require.Equal(t, 2*time.Second, Granted(conn))
			})
		})
	}
}

// What the dialer has read comes before the client library's field.
func TestGrantedByTheDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		handshake.Of(conn).Grant(7 * time.Second)
		require.Equal(t, 7*time.Second, Granted(conn))
	})
}

func TestInvalid(t *testing.T) {
	for name, c := range map[string]struct {
		servers []string
		timeout time.Duration
		option  Option
		want    error
	}{
		"chroot":     {[]string{"a:1/b"}, timeout, WithLogger(slog.Default()), ErrServers},
		"no server":  {nil, timeout, WithLogger(slog.Default()), ErrServers},
		"timeout":    {[]string{"a"}, 99 * time.Millisecond, WithLogger(slog.Default()), zkerror.ErrInvalidOption},
		"nil option": {[]string{"a"}, timeout, nil, zkerror.ErrInvalidOption},
		"nil dialer": {[]string{"a"}, timeout, WithDialer(nil), zkerror.ErrInvalidOption},
		"nil log":    {[]string{"a"}, timeout, WithLogger(nil), zkerror.ErrInvalidOption},
		"nil client": {[]string{"a"}, timeout, WithClient(nil), zkerror.ErrInvalidOption},
	} {
		_, _, err := Connect(c.servers, c.timeout, c.option)
		require.ErrorIs(t, err, c.want, name)
	}
}

// The error of a wait that ends names the server and the cause.
func TestWaitSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		wait := func(options ...Option) error {
			conn, _, err := Connect([]string{"zk.example:2181"}, timeout, append(options, WithDialer(srv.Dialer()))...)
			require.NoError(t, err)
			t.Cleanup(conn.Close)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err = Wait(ctx, conn)
			require.ErrorIs(t, err, zkerror.ErrUnreachable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
		srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		require.ErrorContains(t, wait(), "zk.example:2181: the server closed the connection before it answered")
		srv.Stop()
		require.ErrorContains(t, wait(), "zk.example:2181: dial zktest")
	})
}

// A rebuilt ensemble refuses a client that has seen later transactions. The session ends
// when no server has accepted the client for a session timeout, and a new one begins.
func TestRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		var log bytes.Buffer
		conn := connect(t, srv, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for range 20 {
			_, err := conn.Create("/n", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		_, _, watch, err := conn.ExistsW("/watched")
		require.NoError(t, err)
		session, begin := conn.SessionID(), time.Now()
		srv.Restart(zktest.LoseAll)
		event := <-watch
		require.ErrorIs(t, event.Err, zk.ErrSessionExpired)
		require.Greater(t, time.Since(begin), timeout)
		require.Less(t, time.Since(begin), timeout+5*time.Second)
		require.True(t, handshake.Of(conn).Lost(session))
		_, err = Wait(t.Context(), conn)
		require.NoError(t, err)
		_, err = conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NotEqual(t, session, conn.SessionID())
		require.Contains(t, log.String(), "the servers have lost their data")
		conn.Close()
		synctest.Wait() // until the server has read the end of the connection
		require.Zero(t, srv.Connections())
	})
}

// Servers without a quorum close connections, too, whoever the client is: the session is
// not over before one answers.
func TestNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		session := conn.SessionID()
		srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		srv.DropConnections()
		time.Sleep(time.Hour)
		require.ErrorIs(t, handshake.Of(conn).Failure(), errClosed)
		require.Equal(t, session, conn.SessionID())
		require.False(t, handshake.Of(conn).Lost(session))
	})
}

// A server that lags behind refuses the client, too, and knows its session.
func TestVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		d := &dialer{log: slog.New(slog.DiscardHandler), record: handshake.Of(new(zk.Conn))}
		request := make(handshake.Request, 48) // with a password of 16 bytes
		request[3], request[18], request[31] = 44, 0x27, 16
		again := func() (net.Conn, error) { return srv.Dialer()("tcp", srv.Name(), time.Second) }
		answer, err := (&link{dialer: d, request: request, limit: time.Second, again: again}).ask()
		require.NoError(t, err)
		require.NotZero(t, answer.Session())
		verdict := func(session int64, seen byte) handshake.Answer {
			binary.BigEndian.PutUint64(request[20:], uint64(session))
			copy(request[32:], answer[24:40])
			request[15] = seen
			return (&link{dialer: d, request: request, limit: time.Second, again: again}).verdict()
		}
		require.Nil(t, verdict(answer.Session(), 1), "the server knows the session")
		require.Nil(t, verdict(answer.Session()+1, 0), "it was not refused for what it has seen")
		require.Nil(t, verdict(0, 1), "there is no session to end")
		require.False(t, d.record.Lost(answer.Session()+1))
		over := verdict(answer.Session()+1, 1)
		require.NotNil(t, over)
		require.Zero(t, over.Session())
		require.True(t, d.record.Lost(answer.Session()+1))
	})
}

// terminator is a server that speaks TLS, and passes on what is in it.
func terminator(t *testing.T, to string) (addr string, authorities *x509.CertPool) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	config := &tls.Config{Certificates: web.TLS.Certificates}
	authorities = x509.NewCertPool()
	authorities.AddCert(web.Certificate())
	web.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(out, in); out.Close(); in.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); out.Close(); in.Close() })
		}
	})
	return listener.Addr().String(), authorities
}

func TestTLS(t *testing.T) {
	srv := zktest.Start(t)
	addr, authorities := terminator(t, srv.Addr())
	conn, _, err := Connect([]string{addr}, 10*time.Second, WithTLS(&tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}))
	require.NoError(t, err)
	granted, err := Wait(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, granted)
	conn.Close()

	d := &dialer{tls: &tls.Config{MinVersion: tls.VersionTLS12}, open: net.DialTimeout}
	_, err = d.connect("tcp", addr, 10*time.Second)
	require.ErrorContains(t, err, "certificate")
}
