package zkdial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDialer_StartsNewSessionAfterDataLoss checks that a client can connect to servers that have lost their
// data. Such servers reject a client that has seen later transactions. The session must expire after a session
// timeout, and a new session start.
func TestDialer_StartsNewSessionAfterDataLoss(t *testing.T) {
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
		require.NotZero(t, connection.RecordOf(conn).Facts().Losses)
		_, err = Wait(t.Context(), conn)
		require.NoError(t, err)
		_, err = conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NotEqual(t, session, conn.SessionID())
		require.Contains(t, log.String(), "the servers have lost their data")
		conn.Close()
		synctest.Wait() // waits until the server has closed the connection
		require.Zero(t, srv.Connections())
	})
}

// TestDialer_KeepsSessionWithoutQuorum checks that the session does not expire while no server answers. Servers
// without a quorum close the connections of all clients.
func TestDialer_KeepsSessionWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		session := conn.SessionID()
		srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		srv.DropConnections()
		time.Sleep(time.Hour)
		require.ErrorIs(t, connection.RecordOf(conn).Facts().Failure, errRefused)
		require.Equal(t, session, conn.SessionID())
		require.Zero(t, connection.RecordOf(conn).Facts().Losses)
	})
}

// TestDialer_ExpiresOnlyUnknownSessions checks that confirmExpiry reports an expired session if the server does
// not know the session, and not if the server knows it and only lags behind.
func TestDialer_ExpiresOnlyUnknownSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		d := &dialer{servers: 1, log: slog.New(slog.DiscardHandler), outage: outage{log: slog.New(slog.DiscardHandler)}, record: connection.RecordOf(new(zk.Conn))}
		request := make(connectRequest, 48) // the length of a request with a password of 16 bytes
		request[3], request[18], request[31] = 44, 0x27, 16
		redial := func() (net.Conn, error) { return srv.Dialer()("tcp", srv.Name(), time.Second) }
		answer, err := (&handshakeConn{dialer: d, request: request, timeout: time.Second, redial: redial}).requestSession()
		require.NoError(t, err)
		require.NotZero(t, answer.session())
		confirm := func(session int64, seen byte) connectReply {
			binary.BigEndian.PutUint64(request[20:], uint64(session))
			copy(request[32:], answer[24:40])
			request[15] = seen
			return (&handshakeConn{dialer: d, request: request, timeout: time.Second, redial: redial}).confirmExpiry()
		}
		require.Nil(t, confirm(answer.session(), 1), "the server knows the session")
		require.Nil(t, confirm(answer.session()+1, 0), "the client has seen no transaction")
		require.Nil(t, confirm(0, 1), "there is no session")
		require.Zero(t, d.record.Facts().Losses)
		expired := confirm(answer.session()+1, 1)
		require.NotNil(t, expired)
		require.Zero(t, expired.session())
		require.Equal(t, 1, d.record.Facts().Losses)
	})
}

// TestDialer_CountsBrokenConnections checks that each break of the connection is counted, even if the client is
// connected to the same server again before the next poll, and that an attempt without a session is not
// counted.
func TestDialer_CountsBrokenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(t, srv)
		sub := connection.Subscribe(conn, 0)
		defer sub.Close()
		record, id := connection.RecordOf(conn), conn.SessionID()
		for i := range uint64(20) {
			time.Sleep(time.Duration(i)*time.Millisecond + 2*time.Second)
			require.Equal(t, i, record.Facts().Breaks)
			before := sub.State()
			srv.DropConnections()
			time.Sleep(timeout / 2)
			require.Equal(t, i+1, record.Facts().Breaks)
			require.NotEqual(t, before.Epoch, sub.State().Epoch)
		}
		hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		srv.DropConnections()
		time.Sleep(timeout / 2)
		require.EqualValues(t, 21, record.Facts().Breaks)
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
		if connectRequest(b).lastSeen() != 0 {
			b = bytes.Clone(b)
			binary.BigEndian.PutUint64(b[8:], math.MaxInt64)
		}
	})
	return c.Conn.Write(b)
}

// TestDialer_ExpiresSessionOfRestoredServer checks that a session expires even when the client asks for it
// again and again. A server that was restored from a backup may know the session but not the transactions that
// the client has seen.
func TestDialer_ExpiresSessionOfRestoredServer(t *testing.T) {
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
				_, _, err = conn.Exists(path) // extends the session, so that it expires as late as possible
				require.NoError(t, err)
				session := conn.SessionID()
				restored.Store(true)
				srv.DropConnections()
				time.Sleep(time.Minute)
				require.NotZero(t, connection.RecordOf(conn).Facts().Losses)
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

// brokenWrites is a connection on which the n-th write after the handshake, counted from 0, fails. The
// write of the handshake has the number -1.
type brokenWrites struct {
	net.Conn
	n, writes int
}

var errWrite = errors.New("no route to host")

func (c *brokenWrites) Write(b []byte) (int, error) {
	c.writes++
	if c.writes == c.n+2 {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: errWrite}
	}
	return c.Conn.Write(b)
}

// TestDialer_ReconnectsAfterFailedWrite checks that a client recovers from a failed write of any packet that it
// sends when it connects again.
func TestDialer_ReconnectsAfterFailedWrite(t *testing.T) {
	packets := []string{"handshake", "first credentials", "second credentials", "watches", "request or ping", "ping or request", "next", "next but one"}
	for i, packet := range packets {
		t.Run(packet, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t)
				var dials atomic.Int64
				conn := connect(t, srv, WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
					conn, err := srv.Dialer()(network, address, timeout)
					if dials.Add(1) == 2 && err == nil {
						conn = &brokenWrites{Conn: conn, n: i - 1}
					}
					return conn, err
				}))
				require.NoError(t, conn.AddAuth("digest", []byte("a:b")))
				require.NoError(t, conn.AddAuth("digest", []byte("c:d")))
				e, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
				require.NoError(t, err)
				go e.ElectLeader()
				time.Sleep(2 * timeout)
				leadership := e.Current().Leadership
				require.NotNil(t, leadership)
				_, _, _, err = conn.ExistsW("/watched")
				require.NoError(t, err)
				srv.DropConnections()
				time.Sleep(3 * timeout)
				require.EqualValues(t, 3, dials.Load())
				require.Equal(t, zk.StateHasSession, conn.State())
				require.NotNil(t, e.Current().Leadership)
				require.Equal(t, leadership.Token(), e.Current().Leadership.Token())
				require.NoError(t, e.Resign())
			})
		})
	}
}

// deafConn is a connection whose network stops after the handshake: packets of the client are lost, or
// remain in the buffers of its host until these are full.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
	full net.Conn // the connection whose buffers fill up; nil if packets are lost
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.deaf.Store(c.deaf.Load() || n > 20)
	return n, err
}

func (c *deafConn) Write(b []byte) (int, error) {
	switch {
	case !c.deaf.Load():
		return c.Conn.Write(b)
	case c.full != nil:
		return c.full.Write(b)
	}
	return len(b), nil
}

func (c *deafConn) SetWriteDeadline(t time.Time) error {
	if c.full != nil {
		return c.full.SetWriteDeadline(t)
	}
	return nil
}

func (c *deafConn) Close() error {
	if c.full != nil {
		c.full.Close()
	}
	return c.Conn.Close()
}

// serverFaults contains faults of a server that still accepts connections, by name.
var serverFaults = map[string]struct {
	begin, end func(*zktest.Server, time.Duration)
	wrap       func(net.Conn) net.Conn
}{
	"does not answer": {
		begin: func(s *zktest.Server, _ time.Duration) { s.Pause() },
		end:   func(s *zktest.Server, _ time.Duration) { s.Resume() },
	},
	"answers after half a session timeout": {
		begin: func(s *zktest.Server, timeout time.Duration) { s.Delay(zktest.BothWays, timeout/4) },
		end:   func(s *zktest.Server, _ time.Duration) { s.Delay(zktest.BothWays, 0) },
	},
	"drops packets after the handshake": {wrap: func(conn net.Conn) net.Conn { return &deafConn{Conn: conn} }},
	"reads nothing after the handshake": {wrap: func(conn net.Conn) net.Conn {
		full, _ := net.Pipe()
		return &deafConn{Conn: conn, full: full}
	}},
}

// faultyCluster is an ensemble of which server 0 can fail.
type faultyCluster struct {
	*zktest.Ensemble
	faulty atomic.Bool
	wrap   func(net.Conn) net.Conn
}

func (c *faultyCluster) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := c.Dialer()(network, address, timeout)
	if err == nil && c.wrap != nil && c.faulty.Load() && address == c.Names()[0] {
		conn = c.wrap(conn)
	}
	return conn, err
}

func (c *faultyCluster) connect(t *testing.T, timeout time.Duration) *zk.Conn {
	return requireEstablished(t, open(t, c.Names(), timeout, WithDialer(c.dial)))
}

// TestDialer_KeepsSessionDespiteFaultyServer checks that a client does not lose its session when one server of
// three accepts connections and does not serve them, and that a new client needs less than half of its session
// timeout to connect.
func TestDialer_KeepsSessionDespiteFaultyServer(t *testing.T) {
	for name, fault := range serverFaults {
		for _, timeout := range []time.Duration{4 * time.Second, 10 * time.Second, 40 * time.Second} {
			t.Run(fmt.Sprint(name, ", ", timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &faultyCluster{Ensemble: zktest.StartEnsemble(t, 3, zktest.WithTick(2*time.Second)), wrap: fault.wrap}
					for round := range 6 {
						old := c.connect(t, timeout)
						id := old.SessionID()
						time.Sleep(timeout + time.Duration(round)*timeout/7)
						c.faulty.Store(true)
						if fault.begin != nil {
							fault.begin(c.Server(0), timeout)
						}
						for i := range 3 {
							c.Server(i).DropConnections(id)
						}
						start := time.Now()
						fresh := c.connect(t, timeout)
						require.LessOrEqual(t, time.Since(start), timeout/2, "a new client")
						time.Sleep(2 * timeout)
						require.Equal(t, id, old.SessionID())
						require.Equal(t, zk.StateHasSession, old.State())
						c.faulty.Store(false)
						if fault.end != nil {
							fault.end(c.Server(0), timeout)
						}
						time.Sleep(timeout)
						require.Equal(t, id, old.SessionID())
						old.Close()
						fresh.Close()
					}
				})
			})
		}
	}
}

// TestDialer_KeepsSessionDuringRollingRestart checks that a client keeps its session while the servers are
// restarted one after another, and one of them accepts connections and does not answer.
func TestDialer_KeepsSessionDuringRollingRestart(t *testing.T) {
	for _, servers := range []int{3, 5} {
		for run := range 20 {
			t.Run(fmt.Sprintf("%d servers, run %d", servers, run), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &faultyCluster{Ensemble: zktest.StartEnsemble(t, servers, zktest.WithTick(2*time.Second))}
					conn := c.connect(t, timeout)
					id := conn.SessionID()
					c.Server(run % servers).Pause()
					for i := range servers {
						if i == run%servers {
							continue
						}
						time.Sleep(time.Duration(run) * timeout / 10)
						c.Server(i).Stop()
						time.Sleep(timeout/4 + time.Duration(run)*timeout/20)
						c.Server(i).Restart(zktest.KeepTree)
						time.Sleep(3 * timeout)
						require.Equal(t, id, conn.SessionID())
						require.Equal(t, zk.StateHasSession, conn.State())
					}
				})
			})
		}
	}
}

// TestDialer_ConnectsToSlowServers checks that a client connects to servers that all need longer for the
// handshake than the limit for the first attempt.
func TestDialer_ConnectsToSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &faultyCluster{Ensemble: zktest.StartEnsemble(t, 3)}
		for i := range 3 {
			c.Server(i).Delay(zktest.ToServer, timeout*6/10)
		}
		c.connect(t, timeout)
	})
}

// TestDialer_HandshakeLimitIncludesDial checks that the limit for one server includes the time until the
// network connection is open. Otherwise a server that is slow to accept it and then does not answer would take
// twice as long.
func TestDialer_HandshakeLimitIncludesDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		srv.Pause()
		start := time.Now()
		// For this timeout the limit of the first attempt is a second.
		conn := open(t, []string{srv.Name()}, 3*time.Second,
			WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				time.Sleep(timeout * 9 / 10)
				return srv.Dialer()(network, address, timeout)
			}))
		for connection.RecordOf(conn).Facts().Failure == nil {
			time.Sleep(10 * time.Millisecond)
		}
		require.WithinDuration(t, start.Add(time.Second), time.Now(), 200*time.Millisecond)
	})
}
