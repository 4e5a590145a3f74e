package testenv

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

// Authority is a certificate authority that issues certificates for tests. Programs that use the Pool of an
// Authority trust its certificates.
type Authority struct {
	Pool *x509.CertPool
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority creates an authority. If one of its methods fails, the method ends the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, Pool: x509.NewCertPool()}
	template := &x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: lastDay, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.signCertificate("authority", template)
	cert, err := x509.ParseCertificate(der)
	a.requireNoError(err)
	a.cert, a.key = cert, key
	a.Pool.AddCert(cert)
	return a
}

// Issue issues a certificate for host, a name or an IP address. Servers and clients may use the certificate.
func (a *Authority) Issue(host string) tls.Certificate {
	a.t.Helper()
	return a.issueCertificate(host, time.Unix(0, 0), lastDay)
}

// lastDay is the day on which certificates expire, unless the caller of WriteFiles chooses another day.
var lastDay = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func (a *Authority) issueCertificate(host string, from, to time.Time) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{NotBefore: from, NotAfter: to, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, key := a.signCertificate(host, template)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Config returns a TLS configuration, for servers and clients, that contains a certificate for host and trusts the
// certificates of the authority.
func (a *Authority) Config(host string) *tls.Config {
	a.t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{a.Issue(host)}, RootCAs: a.Pool, ClientCAs: a.Pool}
}

// Files writes PEM files and returns their paths: the certificate of the authority, a certificate for host,
// and its key.
func (a *Authority) Files(host string) (ca, cert, key string) {
	a.t.Helper()
	return a.WriteFiles(a.t.TempDir(), host, time.Unix(0, 0), lastDay)
}

// WriteFiles writes the files that Files describes to a directory, and replaces existing files. The certificate for
// host is valid between from and to.
func (a *Authority) WriteFiles(dir, host string, from, to time.Time) (ca, cert, key string) {
	a.t.Helper()
	pair := a.issueCertificate(host, from, to)
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	a.requireNoError(err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		a.requireNoError(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", a.cert.Raw), write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", private)
}

// signCertificate issues a certificate. The first call issues the certificate of the authority itself, which is
// self-signed.
func (a *Authority) signCertificate(name string, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.requireNoError(err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	a.requireNoError(err)
	return der, key
}

// requireNoError ends the test if err is not nil.
func (a *Authority) requireNoError(err error) {
	if err != nil {
		a.t.Helper()
		a.t.Fatal(err)
	}
}
