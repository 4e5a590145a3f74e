package zktest

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestPipeErrors: what a program sees of the end of a connection in memory is what
// it would see of a socket's.
func TestPipeErrors(t *testing.T) {
	tcp := func() (client, server net.Conn) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if client, err = net.Dial("tcp", ln.Addr().String()); err == nil {
			server, err = ln.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	for name, open := range map[string]func() (client, server net.Conn){"pipe": newPipe, "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			client, server := open()
			want := func(what string, err error, is error, timeout bool) {
				t.Helper()
				var op *net.OpError
				if !errors.As(err, &op) || !errors.Is(err, is) || op.Timeout() != timeout {
					t.Errorf("%s: %#v, want a *net.OpError with %v", what, err, is)
				}
			}
			b := make([]byte, 1)
			client.SetDeadline(time.Now().Add(-time.Second))
			_, err := client.Read(b)
			want("read when it is too late", err, os.ErrDeadlineExceeded, true)
			_, err = client.Write(b)
			want("write when it is too late", err, os.ErrDeadlineExceeded, true)
			client.SetDeadline(time.Time{})
			server.Close()
			if _, err := client.Read(b); err != io.EOF {
				t.Errorf("read what the other end has closed: %v", err)
			}
			for err = nil; err == nil; { // a socket learns it from the answer to the first write
				_, err = client.Write(b)
			}
			if errors.Is(err, syscall.ECONNRESET) {
				err = &net.OpError{Err: syscall.EPIPE} // or like that
			}
			want("write to what the other end has closed", err, syscall.EPIPE, false)
			client.Close()
			_, err = client.Read(b)
			want("read after Close", err, net.ErrClosed, false)
			_, err = client.Write(b)
			want("write after Close", err, net.ErrClosed, false)
			want("Close after Close", client.Close(), net.ErrClosed, false)
		})
	}
}
