package zktest_test

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestHandshake_SessionTimeoutIsLimited checks that the server raises or lowers a requested session timeout to the
// limits of WithSessionTimeouts.
func TestHandshake_SessionTimeoutIsLimited(t *testing.T) {
	s := zktest.Start(t, zktest.WithSessionTimeouts(2*time.Second, 5*time.Second))
	for request, want := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second, 3 * time.Second: 3 * time.Second, time.Hour: 5 * time.Second,
	} {
		c, _ := connect(t, s, request)
		all := s.Sessions()
		i := slices.IndexFunc(all, func(x zktest.Session) bool { return x.ID == c.SessionID() })
		assert.Equal(t, want, all[i].Timeout, "timeout %v for a request of %v", all[i].Timeout, request)
	}
}

// newSessionHandshake returns a handshake that requests a new session.
func newSessionHandshake() []byte {
	var e wire.Encoder
	start := e.Begin()
	e.ConnectRequest(&wire.ConnectRequest{Timeout: 10000, Password: make([]byte, 16)})
	e.End(start)
	return e.B
}

// TestHandshake_MissingHandshakeClosesConnection checks that the server closes a connection on which it has
// received no complete handshake for 10 s.
func TestHandshake_MissingHandshakeClosesConnection(t *testing.T) {
	for name, sent := range map[string][]byte{"silent": nil, "half a handshake": newSessionHandshake()[:20]} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := zktest.Start(t)
				nc := dialRaw(t, s)
				_, err := nc.Write(sent)
				require.NoError(t, err)
				begin := time.Now()
				_, err = nc.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, 10*time.Second, time.Since(begin))
				synctest.Wait()
				require.Zero(t, s.Connections())
			})
		})
	}
	t.Run("paused server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			dialRaw(t, s)
			s.Pause()
			time.Sleep(25 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, s.Connections())
			s.Resume()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Zero(t, s.Connections())
		})
	})
	t.Run("with a session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			nc := dialRaw(t, s)
			hello := newSessionHandshake()
			binary.BigEndian.PutUint32(hello[16:], 60000)
			_, err := nc.Write(hello)
			require.NoError(t, err)
			time.Sleep(50 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, s.Connections())
		})
	})
}

// TestSession_IDsDifferBetweenServers checks that servers that start at the same time do not assign the same
// session ID.
func TestSession_IDsDifferBetweenServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := zktest.Start(t), zktest.Start(t)
		ca, _ := connect(t, a, 10*time.Second)
		cb, _ := connect(t, b, 10*time.Second)
		require.NotEqual(t, ca.SessionID(), cb.SessionID())
	})
}
