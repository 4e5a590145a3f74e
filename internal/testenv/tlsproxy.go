package testenv

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
)

// StartTLSProxy starts a proxy that accepts TLS connections and forwards them to target without TLS, for
// servers that do not implement TLS. The channel receives the errors of failed handshakes. The proxy runs
// until the test ends.
func StartTLSProxy(t testing.TB, config *tls.Config, target string) (addr string, rejected <-chan error) {
	t.Helper()
	failures := make(chan error, 1000)
	accept := func(ctx context.Context, client *net.TCPConn) (Duplex, error) {
		conn := tls.Server(client, config)
		err := conn.HandshakeContext(ctx)
		if err != nil {
			failures <- err
		}
		return conn, err
	}
	p, err := NewProxy(ProxyConfig{Target: target, Accept: accept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Addr(), failures
}
