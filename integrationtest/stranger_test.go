package integrationtest

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// TestStranger_ClosesSessionWithoutCredentials documents, for docs/access.md, that a client that can reach the
// servers can close the session of the leader without credentials, because it can compute the password of the
// session. The next candidate leads immediately. The former leader must stop when its lease expires at the latest,
// and the token of the next leader must be greater.
func TestStranger_ClosesSessionWithoutCredentials(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connect(t)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	deadline := l.Deadline()

	endSession(t, conn.Server(), conn.SessionID())
	successor := next.requireLeader(t)
	require.Greater(t, successor.Token(), l.Token())
	select {
	case <-l.Done():
	case <-time.After(time.Until(deadline) + time.Minute):
		require.Fail(t, "the former leader has not noticed that its session was closed")
	}
}

// endSession closes a session, as a client could that knows only the ID of the session: a server of ZooKeeper 3.8
// computes the password of a session from the ID, with java.util.Random.
func endSession(t *testing.T, server string, session int64) {
	conn, err := net.DialTimeout("tcp", server, time.Minute)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	var e wire.Encoder
	start := e.Begin()
	e.ConnectRequest(&wire.ConnectRequest{Timeout: 4000, Session: session, Password: sessionPassword(session), HasReadOnly: true})
	e.End(start)
	start = e.Begin()
	e.Header(wire.Header{Xid: 1, Op: wire.CloseSession})
	e.End(start)
	_, err = conn.Write(e.B)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err)
}

func sessionPassword(session int64) (password []byte) {
	const multiplier, mask = 0x5DEECE66D, 1<<48 - 1
	state := (uint64(session^0xB3415C00) ^ multiplier) & mask
	for len(password) < 16 {
		state = (state*multiplier + 0xB) & mask
		for word, i := uint32(state>>16), 0; i < 4; i++ {
			password = append(password, byte(word))
			word >>= 8
		}
	}
	return password
}
