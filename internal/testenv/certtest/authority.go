// Package certtest issues certificates for tests, as users' own authorities would.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates, and is trusted by those that use its pool.
type Authority struct {
	Pool *x509.CertPool
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority for t, which fails if anything of it does.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, Pool: x509.NewCertPool()}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign("authority", template)
	cert, err := x509.ParseCertificate(der)
	a.check(err)
	a.cert, a.key = cert, key
	a.Pool.AddCert(cert)
	return a
}

// Issue makes a certificate by which a process on host, a name or an IP address, accepts
// connections and dials.
func (a *Authority) Issue(host string) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, key := a.sign(host, template)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Config has a certificate for host, and trusts the authority's servers and clients.
func (a *Authority) Config(host string) *tls.Config {
	a.t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{a.Issue(host)}, RootCAs: a.Pool, ClientCAs: a.Pool}
}

// Files are the authority's certificate, and one for host with its key, in PEM.
func (a *Authority) Files(host string) (ca, cert, key string) {
	a.t.Helper()
	dir, pair := a.t.TempDir(), a.Issue(host)
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	a.check(err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		a.check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", a.cert.Raw), write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", private)
}

// sign makes a certificate; the authority's own, which is the first, signs itself.
func (a *Authority) sign(name string, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	a.check(err)
	return der, key
}

func (a *Authority) check(err error) {
	if err != nil {
		a.t.Helper()
		a.t.Fatal(err)
	}
}
