package certtest

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
)

// StartProxy starts a proxy that accepts TLS connections and forwards them to target without TLS, for
// servers that do not implement TLS. The channel receives the errors of failed handshakes. The test
// must close its clients: when it ends, StartProxy waits until their connections are closed.
func StartProxy(t testing.TB, config *tls.Config, target string) (addr string, rejected <-chan error) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	failures := make(chan error, 1000)
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				if err := in.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
					failures <- err
					return
				}
				forward(in, target)
			})
		}
	})
	return listener.Addr().String(), failures
}

// forward copies bytes between in and a new connection to target, until one of them ends.
func forward(in net.Conn, target string) {
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(in, out); in.Close() }()
	_, _ = io.Copy(out, in)
	out.Close()
	<-done
}
