package zktest

import (
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// brokenListener is a listener whose first Accept fails.
type brokenListener struct {
	net.Listener
	failed bool
	conns  chan net.Conn
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	if nc, open := <-l.conns; open {
		return nc, nil
	}
	return nil, net.ErrClosed
}

// TestServer_AcceptsConnectionsAfterErrorOfAccept checks that a server accepts connections after an error of
// Accept, and returns when the listener is closed.
func TestServer_AcceptsConnectionsAfterErrorOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Start(t)
		l := &brokenListener{conns: make(chan net.Conn, 1)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.acceptFrom(l)
		}()
		client, server := net.Pipe()
		defer client.Close()
		l.conns <- server
		_, err := io.WriteString(client, "ruok")
		require.NoError(t, err)
		answer, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, "imok", string(answer))
		close(l.conns)
		<-ended
	})
}
