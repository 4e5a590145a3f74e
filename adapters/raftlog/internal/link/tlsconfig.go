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
)

// throwAway makes the certificate that TLS demands of whoever accepts connections, where a
// secret is what proves something. Nobody looks at it, so one does for the process.
var throwAway = sync.OnceValues(func() (tls.Certificate, error) {
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

// clientTLS is the configuration of the side that dials.
func (i Identity) clientTLS(conn net.Conn) *tls.Config {
	if i.TLS == nil {
		return harden(&tls.Config{InsecureSkipVerify: true})
	}
	c := harden(i.TLS.Clone())
	if c.ServerName == "" {
		c.ServerName = i.ServerName
	}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(conn.RemoteAddr().String())
	}
	return c
}

// serverTLS is the configuration of the side that accepts.
func (i Identity) serverTLS() (*tls.Config, error) {
	if i.TLS == nil {
		cert, err := throwAway()
		return harden(&tls.Config{Certificates: []tls.Certificate{cert}}), err
	}
	c := mutual(i.TLS.Clone())
	if choose := c.GetConfigForClient; choose != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil {
				return nil, err
			}
			if chosen == nil { // this one is to do
				chosen = i.TLS
			}
			chosen = mutual(chosen.Clone())
			chosen.GetConfigForClient = nil
			return chosen, validateServer(chosen, len(i.Secret) > 0)
		}
	}
	return c, nil
}

func mutual(c *tls.Config) *tls.Config {
	if c.ClientAuth != tls.RequireAnyClientCert || !verifies(c) {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return harden(c)
}

// harden has every connection begin anew: a session that is resumed would not look at
// certificates again, and its first bytes could be replayed.
func harden(c *tls.Config) *tls.Config {
	c.MinVersion = tls.VersionTLS13
	c.SessionTicketsDisabled = true
	c.ClientSessionCache = nil
	// Frames are large or flushed: records that begin small would only cost.
	c.DynamicRecordSizingDisabled = true
	return c
}
