// Package transport decides how clients connect to servers: with or without TLS, and whether credentials
// may be sent. Its decisions are functions of the settings, so that they are made before anything is
// sent.
package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Security says whether an address requires or excludes TLS.
type Security int

const (
	// Unspecified addresses, such as host:port, are used with or without TLS.
	Unspecified Security = iota
	// Plain addresses, such as http://host:port, exclude TLS, or make it optional.
	Plain
	// TLS addresses, such as https://host:port, require TLS.
	TLS
)

// An Address is an address of a server, or a parameter of such an address.
type Address struct {
	Text     string // Text is its text for messages, without credentials.
	Security Security
}

// UsesTLS reports whether a client uses TLS for servers with the given addresses. flags reports whether
// the user has set options of TLS. The error names addresses that contradict each other or the options:
// a client that followed one of them could send credentials without TLS although another requires it.
func UsesTLS(flags bool, addresses ...Address) (bool, error) {
	var plain, secure, unspecified string
	for _, a := range addresses {
		switch a.Security {
		case Plain:
			plain = a.Text
		case TLS:
			secure = a.Text
		default:
			unspecified = a.Text
		}
	}
	switch {
	case plain != "" && secure != "":
		return false, fmt.Errorf("%s and %s differ in whether they use TLS: use one scheme for all", plain, secure)
	case plain != "" && flags:
		return false, fmt.Errorf("%s permits connections without TLS, but options of TLS are set: change the address, or omit the options", plain)
	case plain != "" && unspecified != "", secure != "" && unspecified != "" && !flags:
		return false, fmt.Errorf("%s has no scheme, but %s has one: use one scheme for all", unspecified, plain+secure)
	}
	return flags || secure != "", nil
}

// A Login describes how a client authenticates itself to servers.
type Login struct {
	Backend    string   // Backend is the name of the system, such as "redis".
	Credential string   // Credential is sent, for example "password". It is "" if there is none.
	Hosts      []string // Hosts are the hosts of the servers, without ports. A path is a Unix socket.
	TLS        bool     // TLS reports that no connection is made without TLS.
	// Explicit reports that the user has chosen to send the credential without TLS.
	Explicit bool
	Setting  string // Setting describes how to use TLS, for the error.
}

// OnlyLocal reports whether the credential may be sent to this machine only, because it is sent without TLS
// and the user has not chosen that. The client must then not connect to further servers that a server
// names.
func (l Login) OnlyLocal() bool { return l.Credential != "" && !l.TLS && !l.Explicit }

// ErrPlainCredentials is wrapped by the errors of [Login.Check].
var ErrPlainCredentials = errors.New("the servers would receive credentials without TLS")

// Check returns an error if a credential would be sent without TLS to a host that may be another machine,
// unless the user has chosen that.
func (l Login) Check() error {
	if !l.OnlyLocal() {
		return nil
	}
	for _, host := range l.Hosts {
		if !IsLocal(host) {
			return fmt.Errorf("%w: the %s of %s would be sent to %s: %s", ErrPlainCredentials, l.Credential, l.Backend, host, l.Setting)
		}
	}
	return nil
}

// IsLocal reports whether a host to connect to is this machine: localhost, a loopback address, the address
// 0.0.0.0 or ::, or the path of a Unix socket. It does not resolve names.
func IsLocal(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// Host returns the host of host:port, or of an address without a port, without the brackets of an IPv6 address.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	if strings.HasPrefix(address, "[") && strings.HasSuffix(address, "]") {
		return address[1 : len(address)-1]
	}
	return address
}

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
