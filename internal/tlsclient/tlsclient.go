// Package tlsclient prepares TLS configurations for connections to single servers.
package tlsclient

import "crypto/tls"

// ForServer returns a copy of a configuration for a connection to a server, whose certificate must be
// for host, a name or an IP address, unless ServerName is set. VerifyConnection receives that name as
// the ServerName of the state, also if it is an IP address, which crypto/tls omits.
func ForServer(config *tls.Config, host string) *tls.Config {
	c := config.Clone()
	if c.ServerName == "" {
		c.ServerName = host
	}
	if name, verify := c.ServerName, c.VerifyConnection; verify != nil {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			s.ServerName = name
			return verify(s)
		}
	}
	return c
}
