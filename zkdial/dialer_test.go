package zkdial

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDialer_RebuiltEnsemble fails if a client cannot connect to servers that have lost their data. They
// reject a client that has seen later transactions. The session must expire after a session timeout,
// and a new session start.
func TestDialer_RebuiltEnsemble(t *testing.T) {
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
		session, start := conn.SessionID(), time.Now()
		srv.Restart(zktest.LoseAll)
		event := <-watch
		require.ErrorIs(t, event.Err, zk.ErrSessionExpired)
		require.Greater(t, time.Since(start), timeout)
		require.Less(t, time.Since(start), timeout+5*time.Second)
		require.True(t, handshake.Of(conn).Lost(session))
		_, err = Wait(t.Context(), conn)
		require.NoError(t, err)
		_, err = conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NotEqual(t, session, conn.SessionID())
		require.Contains(t, log.String(), "the servers have lost their data")
		conn.Close()
		synctest.Wait() // until the server has closed the connection
		require.Zero(t, srv.Connections())
	})
}

// TestDialer_ServersWithoutQuorum fails if the session expires while no server answers. Servers without a
// quorum close the connections of all clients.
func TestDialer_ServersWithoutQuorum(t *testing.T) {
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

// TestDialer_ConfirmExpiry fails if a session expires although the server knows it and only lags behind.
func TestDialer_ConfirmExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		d := &dialer{log: slog.New(slog.DiscardHandler), record: handshake.Of(new(zk.Conn))}
		request := make(handshake.Request, 48) // with a password of 16 bytes
		request[3], request[18], request[31] = 44, 0x27, 16
		redial := func() (net.Conn, error) { return srv.Dialer()("tcp", srv.Name(), time.Second) }
		answer, err := (&handshakeConn{dialer: d, request: request, timeout: time.Second, redial: redial}).requestSession()
		require.NoError(t, err)
		require.NotZero(t, answer.Session())
		confirm := func(session int64, seen byte) handshake.Answer {
			binary.BigEndian.PutUint64(request[20:], uint64(session))
			copy(request[32:], answer[24:40])
			request[15] = seen
			return (&handshakeConn{dialer: d, request: request, timeout: time.Second, redial: redial}).confirmExpiry()
		}
		require.Nil(t, confirm(answer.Session(), 1), "the server knows the session")
		require.Nil(t, confirm(answer.Session()+1, 0), "the client has seen no transaction")
		require.Nil(t, confirm(0, 1), "there is no session")
		require.False(t, d.record.Lost(answer.Session()+1))
		expired := confirm(answer.Session()+1, 1)
		require.NotNil(t, expired)
		require.Zero(t, expired.Session())
		require.True(t, d.record.Lost(answer.Session()+1))
	})
}

// TestDialer_CountsBreaks fails if a break is missed although the client is connected to the same
// server again before the connection is polled, or if an attempt without a session counts as a break.
func TestDialer_CountsBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		sub := session.Subscribe(conn, 0)
		defer sub.Close()
		record, id := handshake.Of(conn), conn.SessionID()
		for i := range uint64(20) {
			time.Sleep(time.Duration(i)*time.Millisecond + 2*time.Second)
			require.Equal(t, i, record.Breaks())
			before := sub.State()
			srv.DropConnections()
			time.Sleep(timeout / 2)
			require.Equal(t, i+1, record.Breaks())
			require.NotEqual(t, before.Epoch, sub.State().Epoch)
		}
		hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		srv.DropConnections()
		time.Sleep(timeout / 2)
		require.EqualValues(t, 21, record.Breaks())
		epoch := sub.State().Epoch
		hook.Remove()
		time.Sleep(timeout / 2)
		require.Equal(t, id, conn.SessionID())
		require.True(t, sub.State().Up)
		require.Equal(t, epoch, sub.State().Epoch)
	})
}

// aheadConn is a connection of a client that has seen a transaction which its server does not have.
type aheadConn struct {
	net.Conn
	write sync.Once
}

func (c *aheadConn) Write(b []byte) (int, error) {
	c.write.Do(func() {
		if handshake.Request(b).LastSeen() != 0 {
			b = bytes.Clone(b)
			binary.BigEndian.PutUint64(b[8:], math.MaxInt64)
		}
	})
	return c.Conn.Write(b)
}

// TestDialer_RestoredSession fails if a session does not expire because the client asks for it again
// and again. A server that was restored from a backup may know the session but not the transactions
// that the client has seen.
func TestDialer_RestoredSession(t *testing.T) {
	const tick = timeout / 2
	for offset := time.Duration(0); offset <= tick; offset += 100 * time.Millisecond {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t, zktest.WithTick(tick))
				var restored atomic.Bool
				conn := connect(t, srv, WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
					conn, err := srv.Dialer()(network, address, timeout)
					if err == nil && restored.Load() {
						conn = &aheadConn{Conn: conn}
					}
					return conn, err
				}))
				path, err := conn.Create("/n", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				time.Sleep(2*tick + offset)
				_, _, err = conn.Exists(path) // so that the session expires as late as possible
				require.NoError(t, err)
				session := conn.SessionID()
				restored.Store(true)
				srv.DropConnections()
				time.Sleep(time.Minute)
				require.True(t, handshake.Of(conn).Lost(session))
				_, err = Wait(t.Context(), conn)
				require.NoError(t, err)
				require.NotEqual(t, session, conn.SessionID())
				exists, _, err := conn.Exists(path)
				require.NoError(t, err)
				require.False(t, exists)
			})
		})
	}
}
