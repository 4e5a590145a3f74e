package zktest_test

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestExpireSession_DeletesEphemerals checks that ExpireSession deletes the ephemeral znodes of the session and
// notifies the client of the session.
func TestExpireSession_DeletesEphemerals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, events := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		_, _, gone, err := b.ExistsW("/e")
		require.NoError(t, err)
		require.NoError(t, s.ExpireSession(a.SessionID()))
		assert.Equal(t, zk.EventNodeDeleted, (<-gone).Type, "event")
		waitState(t, events, zk.StateExpired)
		assert.ErrorIs(t, s.ExpireSession(1), zktest.ErrNoSession, "an unknown session")
	})
}

// TestExpireSession_ClosesConnectionOfSlowReader checks that the server closes the connection of an expired
// session even if the client does not read its replies.
func TestExpireSession_ClosesConnectionOfSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		mustCreate(t, c, "/big", string(make([]byte, 900_000)), 0)
		nc := dialRaw(t, s)
		_, err := nc.Write(newSessionHandshake())
		require.NoError(t, err)
		for i := range 60 {
			_, err = nc.Write(encodePacket(i, zktest.OpGetData, "\x00\x00\x00\x04/big\x00"))
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

// TestSession_EndClosesAllConnections checks that a server closes its connection of an expired session, even if
// the client has moved the session to another server and has left this connection open.
func TestSession_EndClosesAllConnections(t *testing.T) {
	attach := func(t *testing.T, s *zktest.Server, before []byte) (answer []byte) {
		hello := newSessionHandshake()
		copy(hello[20:], before)
		nc := dialRaw(t, s)
		_, err := nc.Write(hello)
		require.NoError(t, err)
		answer = make([]byte, 40) // the answer has a length, version, timeout, session and password
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
				ens := zktest.StartEnsemble(t, 3)
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

// TestSession_ClosesPreviousConnectionAfterMove checks that no connection remains at the previous server after a
// client has moved its session to another server.
func TestSession_ClosesPreviousConnectionAfterMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		e.Server(0).Blackhole(zktest.BothWays)
		waitState(t, events, zk.StateDisconnected)
		waitState(t, events, zk.StateHasSession)
		require.NotEqual(t, e.Server(0).Name(), a.Server(), "the client is still connected to the same server")
		s := e.Server(0).Sessions()
		assert.True(t, len(s) == 1 && s[0].Server != 0, "sessions %+v", s)
		e.Server(0).Heal()
		mustCreate(t, a, "/x", "", 0)
		synctest.Wait() // wait until the server has detected that the client has closed the connection
		assert.Zero(t, e.Server(0).Connections(), "connections of the previous server")
	})
}

// TestSession_OlderConnectionCannotWrite checks that a write over the older connection of a session, which was
// moved to another server, is rejected, and that pings over the older connection extend the session.
func TestSession_OlderConnectionCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		old := newRawClient(t, e.Server(0), false)
		moved := attachRawClient(t, e.Server(1), false, old.session)
		require.Equal(t, old.session, moved.session)
		require.Len(t, e.Server(0).Sessions(), 1)
		for range 100 {
			time.Sleep(time.Second)
			old.send(t, encodePing)
			require.NoError(t, old.discardReply(), "a ping")
		}
		old.send(t, encodeCreate("/old", nil))
		assert.Equal(t, io.EOF, old.discardReply(), "a write")
		moved.send(t, encodeCreate("/moved", nil))
		assert.NoError(t, moved.discardReply())
		assert.Equal(t, "/\n  moved\n", e.Tree(), "tree\n")
		log := e.Server(0).Log().Filter(func(x zktest.Entry) bool { return errors.Is(x.Code, zk.ErrSessionMoved) })
		assert.True(t, len(log) == 1 && log[0].Path == "/old", "log\n%v", log)
	})
}
