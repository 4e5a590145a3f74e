package zkdial

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConnectRequest_ReturnsSessionAndZxid checks that session and lastSeen return the values in a request for
// a session, or 0 if the packet is too short, and that withoutLastSeen does not change the original request.
func TestConnectRequest_ReturnsSessionAndZxid(t *testing.T) {
	r := connectRequest(make([]byte, 48))
	r[15], r[27] = 5, 7
	require.EqualValues(t, 5, r.lastSeen())
	require.EqualValues(t, 7, r.session())
	other := r.withoutLastSeen()
	require.Zero(t, other.lastSeen())
	require.EqualValues(t, 7, other.session())
	require.EqualValues(t, 5, r.lastSeen(), "a copy")
	require.Zero(t, connectRequest("ruok").session())
	require.Zero(t, connectRequest("ruok").lastSeen())
}

// FuzzReadAnswer checks that an answer that readConnectReply accepts is the beginning of the received bytes, is
// complete, and is not too long.
func FuzzReadAnswer(f *testing.F) {
	f.Add(append([]byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0}, make([]byte, 33)...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readConnectReply(bytes.NewReader(data))
		if err != nil {
			return
		}
		require.True(t, bytes.HasPrefix(data, a))
		require.LessOrEqual(t, len(a), 4+maxAnswer)
		require.Zero(t, a.missingBytes())
		_, _ = a.session(), a.timeout()
	})
}
