//go:build unix

package dbserver

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// Proxy partitions one client from its server.
type Proxy = testenv.Proxy

// StartProxy starts a proxy for the server at target, a host:port, until the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := testenv.NewProxy(testenv.ProxyConfig{Target: target})
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}
