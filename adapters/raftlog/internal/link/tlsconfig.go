package link

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/transport"
)

// placeholderCertificate returns the certificate of the accepting side if a secret authenticates it.
// TLS requires a certificate, but the dialing side does not verify it. All connections of the process
// use the same certificate.
var placeholderCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
})

// clientTLS returns the TLS configuration of the dialing side for a connection to addr.
func (i Identity) clientTLS(conn net.Conn, addr string) *tls.Config {
	if i.TLS == nil {
		return hardenTLS(&tls.Config{InsecureSkipVerify: true})
	}
	host, _, _ := net.SplitHostPort(addr)
	if host == "" {
		host, _, _ = net.SplitHostPort(conn.RemoteAddr().String())
	}
	return hardenTLS(transport.ForServer(i.TLS, host))
}

// serverTLS returns the TLS configuration of the accepting side.
func (i Identity) serverTLS() (*tls.Config, error) {
	if i.TLS == nil {
		cert, err := placeholderCertificate()
		return hardenTLS(&tls.Config{Certificates: []tls.Certificate{cert}}), err
	}
	c := requireClientCertificate(i.TLS.Clone())
	if choose := c.GetConfigForClient; choose != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil {
				return nil, err
			}
			if chosen == nil { // the function returns nil to choose the outer configuration
				chosen = i.TLS
			}
			chosen = requireClientCertificate(chosen.Clone())
			chosen.GetConfigForClient = nil
			return chosen, validateServer(chosen, i.hasSecrets())
		}
	}
	return c, nil
}

// requireClientCertificate makes the accepting side require certificates of clients, and verify them by
// crypto/tls or by a function of the user.
func requireClientCertificate(c *tls.Config) *tls.Config {
	if c.ClientAuth != tls.RequireAnyClientCert || !hasVerification(c) {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return hardenTLS(c)
}

// hardenTLS requires TLS 1.3 and disables the resumption of sessions: resumption would skip the
// verification of certificates, and early data could be replayed.
func hardenTLS(c *tls.Config) *tls.Config {
	c.MinVersion = tls.VersionTLS13
	c.SessionTicketsDisabled = true
	c.ClientSessionCache = nil
	// Always send records of full size. By default crypto/tls begins with small records, so that the receiver
	// can use the first bytes early, but a receiver of frames needs the whole frame.
	c.DynamicRecordSizingDisabled = true
	return c
}
