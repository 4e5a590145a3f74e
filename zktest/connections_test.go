package zktest_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// dialRaw makes a connection through memory that no client library uses.
func dialRaw(t *testing.T, s *zktest.Server) net.Conn {
	nc, err := s.Dialer()("", "", 0)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

// packet builds a request with the given xid, operation and body.
func packet(xid int, op zktest.Op, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	return append(b, body...)
}

// A server closes a connection on which no handshake arrives within 10 s.
func TestConnectionWithoutHandshake(t *testing.T) {
	for name, sent := range map[string][]byte{"silent": nil, "half a handshake": handshake()[:20]} {
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
			hello := handshake()
			binary.BigEndian.PutUint32(hello[16:], 60000)
			_, err := nc.Write(hello)
			require.NoError(t, err)
			time.Sleep(50 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, s.Connections())
		})
	})
}

// A session that ends closes its connection, even if the client does not read.
func TestExpiryOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		mustCreate(t, c, "/big", string(make([]byte, 900_000)), 0)
		nc := dialRaw(t, s)
		_, err := nc.Write(handshake())
		require.NoError(t, err)
		for i := range 60 {
			_, err = nc.Write(packet(i, zktest.OpGetData, "\x00\x00\x00\x04/big\x00"))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, 2, s.Connections())
		for _, x := range s.Sessions() {
			if x.ID != c.SessionID() {
				require.NoError(t, s.ExpireSession(x.ID))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, s.Connections())
	})
}

// Every server closes its connection of a session that ends, also one that the client has
// left open when it moved to another server.
func TestEndOfASessionThatHasMoved(t *testing.T) {
	attach := func(t *testing.T, s *zktest.Server, before []byte) (answer []byte) {
		hello := handshake()
		copy(hello[20:], before)
		nc := dialRaw(t, s)
		_, err := nc.Write(hello)
		require.NoError(t, err)
		answer = make([]byte, 40) // length, version, timeout, session, password
		_, err = io.ReadFull(nc, answer)
		require.NoError(t, err)
		return answer[12:]
	}
	for name, end := range map[string]func(s *zktest.Server, session int64){
		"expired": func(s *zktest.Server, session int64) { _ = s.ExpireSession(session) },
		"timeout": func(s *zktest.Server, session int64) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ens := zktest.Cluster(t, 3)
				session := attach(t, ens.Server(0), nil)
				require.Equal(t, session, attach(t, ens.Server(1), session))
				require.Equal(t, session, attach(t, ens.Server(2), session))
				require.Equal(t, 1, ens.Server(0).Connections())
				require.Equal(t, 1, ens.Server(1).Connections())
				end(ens.Server(0), int64(binary.BigEndian.Uint64(session)))
				synctest.Wait()
				for i := range 3 {
					require.Zero(t, ens.Server(i).Connections(), "server %d", i)
				}
			})
		})
	}
}

// A real server without SASL answers a token with success and a null token.
func TestSASLToken(t *testing.T) {
	for name, body := range map[string]string{"token": "\x00\x00\x00\x05token", "empty": "\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nc := dialRaw(t, zktest.Start(t))
				_, err := nc.Write(handshake())
				require.NoError(t, err)
				_, err = io.ReadFull(nc, make([]byte, 40))
				require.NoError(t, err)
				_, err = nc.Write(packet(1, 102, body))
				require.NoError(t, err)
				reply := make([]byte, 24) // length, xid, zxid, error, length of the token
				_, err = io.ReadFull(nc, reply)
				require.NoError(t, err)
				require.Zero(t, binary.BigEndian.Uint32(reply[16:]))
				require.Equal(t, "\xff\xff\xff\xff", string(reply[20:]))
				_, err = nc.Write(packet(2, zktest.OpExists, "\x00\x00\x00\x01/\x00"))
				require.NoError(t, err)
				_, err = io.ReadFull(nc, reply)
				require.NoError(t, err)
			})
		})
	}
}

// Servers that start at the same time have different sessions.
func TestServersOfABubbleHaveDifferentSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := zktest.Start(t), zktest.Start(t)
		ca, _ := connect(t, a, 10*time.Second)
		cb, _ := connect(t, b, 10*time.Second)
		require.NotEqual(t, ca.SessionID(), cb.SessionID())
	})
}
