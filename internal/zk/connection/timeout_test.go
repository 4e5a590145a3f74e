package connection

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// From the first session on, the client library's private field contains the granted timeout, even
// while the connection breaks and is restored.
func TestGranted_ByReflection(t *testing.T) {
	require.GreaterOrEqual(t, timeoutField, 0, "this release of the client library does not contain the field")
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
		hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		conn, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		require.Zero(t, Granted(conn), "requested, and not granted yet")
		hook.Remove()
		for i := range 50 {
			for conn.State() != zk.StateHasSession {
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, 2*time.Second, Granted(conn))
			if i%2 == 0 {
				srv.DropConnections()
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		conn.Close()
	})
}

func TestPackets(t *testing.T) {
	r := ConnectRequest(make([]byte, 48))
	r[15], r[27] = 5, 7
	require.EqualValues(t, 5, r.LastSeen())
	require.EqualValues(t, 7, r.Session())
	other := r.Forgetful()
	require.Zero(t, other.LastSeen())
	require.EqualValues(t, 7, other.Session())
	require.EqualValues(t, 5, r.LastSeen(), "a copy")
	require.Zero(t, ConnectRequest("ruok").Session())
	require.Zero(t, ConnectRequest("ruok").LastSeen())
}

// FuzzReadAnswer reads arbitrary bytes as the answer of a server. An answer is the beginning of them, has a
// session and a timeout, and is short.
func FuzzReadAnswer(f *testing.F) {
	f.Add(append([]byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0}, make([]byte, 33)...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ReadConnectReply(bytes.NewReader(data))
		if err != nil {
			return
		}
		require.True(t, bytes.HasPrefix(data, a))
		require.LessOrEqual(t, len(a), 4+maxAnswer)
		require.Zero(t, a.Missing())
		_, _ = a.Session(), a.Timeout()
	})
}
