package zktest

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPipe_ErrorsEqualTCP checks that an in-memory connection returns the same errors as a TCP connection.
func TestPipe_ErrorsEqualTCP(t *testing.T) {
	tcp := func() (client, server net.Conn) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		if client, err = net.Dial("tcp", ln.Addr().String()); err == nil {
			server, err = ln.Accept()
		}
		require.NoError(t, err)
		return client, server
	}
	for name, open := range map[string]func() (client, server net.Conn){"pipe": newPipe, "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			client, server := open()
			requireError := func(what string, err error, is error, timeout bool) {
				t.Helper()
				var op *net.OpError
				if !errors.As(err, &op) || !errors.Is(err, is) || op.Timeout() != timeout {
					t.Errorf("%s: %#v, want a *net.OpError with %v", what, err, is)
				}
			}
			b := make([]byte, 1)
			client.SetDeadline(time.Now().Add(-time.Second))
			_, err := client.Read(b)
			requireError("read after the deadline", err, os.ErrDeadlineExceeded, true)
			_, err = client.Write(b)
			requireError("write after the deadline", err, os.ErrDeadlineExceeded, true)
			client.SetDeadline(time.Time{})
			server.Close()
			_, err = client.Read(b)
			assert.ErrorIs(t, err, io.EOF, "read after the other side has closed")
			// Repeat, because a socket detects the close only when the first write is rejected.
			for err = nil; err == nil; {
				_, err = client.Write(b)
			}
			if errors.Is(err, syscall.ECONNRESET) {
				err = &net.OpError{Err: syscall.EPIPE} // EPIPE is a possible error of a socket as well
			}
			requireError("write after the other side has closed", err, syscall.EPIPE, false)
			client.Close()
			_, err = client.Read(b)
			requireError("read after Close", err, net.ErrClosed, false)
			_, err = client.Write(b)
			requireError("write after Close", err, net.ErrClosed, false)
			requireError("Close after Close", client.Close(), net.ErrClosed, false)
		})
	}
}
