//go:build unix

package dbserver

import "github.com/go-leaderelection/leaderelection/internal/testenv"

// Proxy partitions one client from its server.
type Proxy = testenv.Proxy

// NewProxy starts a proxy for the server at target, a host:port.
func NewProxy(target string) (*Proxy, error) {
	return testenv.NewProxy(testenv.ProxyConfig{Target: target})
}
