package zkproxy_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// frameOf returns body as a frame: its length as four bytes, followed by the body.
func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestProxy_ForwardsLargeFrames checks that the proxy forwards a large frame without a change, in both directions.
func TestProxy_ForwardsLargeFrames(t *testing.T) {
	t.Parallel()
	accepted, p := fakeServer(t)
	client, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer client.Close()

	random := make([]byte, 9<<20)
	_, err = rand.Read(random)
	require.NoError(t, err)
	var sent bytes.Buffer
	sent.Write(frameOf(make([]byte, 44))) // a handshake packet
	sent.Write(frameOf(random))
	go client.Write(sent.Bytes())
	end := receive(t, accepted)
	defer end.Close()
	got := make([]byte, sent.Len())
	_, err = io.ReadFull(end, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent.Bytes(), got))

	go end.Write(sent.Bytes())
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent.Bytes(), got))
}

// TestProxy_SurvivesMalformedFrames checks that the proxy neither panics nor hangs at a malformed frame: the proxy
// must forward the bytes or close the connection.
func TestProxy_SurvivesMalformedFrames(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]byte{
		"negative length": {0xff, 0xff, 0xff, 0xff},
		"huge length":     {0x7f, 0xff, 0xff, 0xff},
		"empty frames":    make([]byte, 40),
		"cut off":         {0, 0, 0, 44, 1, 2, 3},
		"path too long":   append(frameOf(make([]byte, 44)), frameOf([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff})...),
		"negative path":   append(frameOf(make([]byte, 44)), frameOf([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0, 0, 0})...),
		"empty multi":     append(frameOf(make([]byte, 44)), frameOf([]byte{0, 0, 0, 1, 0, 0, 0, 14})...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepted, p := fakeServer(t)
			client, err := net.Dial("tcp", p.Addr())
			require.NoError(t, err)
			_, err = client.Write(sent)
			require.NoError(t, err)
			require.NoError(t, client.(*net.TCPConn).CloseWrite())

			end := receive(t, accepted)
			require.NoError(t, end.SetDeadline(time.Now().Add(testenv.WaitLimit)))
			go end.Write(sent)
			_, err = io.Copy(io.Discard, end)
			if err != nil {
				assert.ErrorContains(t, err, "reset")
			}
			require.NoError(t, end.Close())
			require.NoError(t, client.SetDeadline(time.Now().Add(testenv.WaitLimit)))
			_, err = io.Copy(io.Discard, client)
			if err != nil {
				assert.ErrorContains(t, err, "reset")
			}
			require.NoError(t, client.Close())
			p.Close()
		})
	}
}
