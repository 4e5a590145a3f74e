//go:build unix

package dbserver_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers are those that this package starts.
func servers() map[string]*dbserver.Shared {
	return map[string]*dbserver.Shared{
		"Postgres": {Start: func() (*dbserver.Server, error) { return dbserver.Postgres() }},
		"Redis":    {Start: func() (*dbserver.Server, error) { return dbserver.Redis() }},
		"NATS":     {Start: func() (*dbserver.Server, error) { return dbserver.NATS() }},
	}
}

// TestServers: a server listens on its port, not after a kill, and again after a start.
func TestServers(t *testing.T) {
	for name, shared := range servers() {
		t.Run(name, func(t *testing.T) {
			s := shared.Get(t)
			dial := func() error {
				conn, err := net.Dial("tcp", s.Addr())
				if err == nil {
					conn.Close()
				}
				return err
			}
			require.NoError(t, dial())
			require.NoError(t, s.Kill())
			require.Error(t, dial())
			require.NoError(t, s.Start())
			require.NoError(t, dial())
			require.NoError(t, s.Restart())
			require.NoError(t, dial())
			require.NoError(t, s.Close())
		})
	}
}

// TestMissing: what is not installed skips a test, and fails it where it is required.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := dbserver.Redis()
	require.ErrorIs(t, err, dbserver.ErrMissing)
	for value, skips := range map[string]bool{"": true, "required": false} {
		t.Setenv("ZKTEST_REAL", value)
		shared := dbserver.Shared{Start: func() (*dbserver.Server, error) { return nil, dbserver.ErrMissing }}
		verdict := &verdict{TB: t}
		shared.Get(verdict)
		require.Equal(t, skips, verdict.skipped)
		require.Equal(t, !skips, verdict.failed)
	}
}

// verdict notes what becomes of a test.
type verdict struct {
	testing.TB
	skipped, failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Skipf(string, ...any)  { v.skipped = true }
func (v *verdict) Fatalf(string, ...any) { v.failed = v.failed || !v.skipped }

// TestProxy: what is cut waits, and what is healed goes on.
func TestProxy(t *testing.T) {
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
		buf := make([]byte, 1)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			_, _ = conn.Write(buf)
		}
	}()
	defer func() { echo.Close(); <-done }()
	p, err := dbserver.NewProxy(echo.Addr().String())
	require.NoError(t, err)
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	answers := func(wait time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	send := func() { _, err := conn.Write([]byte("x")); require.NoError(t, err) }
	send()
	require.NoError(t, answers(10*time.Second))
	p.Cut()
	send()
	require.ErrorIs(t, answers(100*time.Millisecond), os.ErrDeadlineExceeded)
	p.Heal()
	require.NoError(t, answers(10*time.Second))
	p.Drop()
	require.Error(t, answers(10*time.Second))
}
