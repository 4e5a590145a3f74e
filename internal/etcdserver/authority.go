package etcdserver

// Certificates for servers and clients that trust nobody else.

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

// Authority is a certificate authority of one test, with a certificate for the servers on
// loopback and another for clients.
type Authority struct {
	caFile, certFile, keyFile string
	clientCert, clientKey     string
	pool                      *x509.CertPool
	pair                      tls.Certificate
}

// NewAuthority makes one, in a directory of the test's.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	a := &Authority{
		caFile: file("ca.pem"), certFile: file("server.pem"), keyFile: file("server.key"),
		clientCert: file("client.pem"), clientKey: file("client.key"), pool: x509.NewCertPool(),
	}
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	template := func(n int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: "test"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		}
	}
	write := func(name, kind string, der []byte) {
		check(os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	ca := template(1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	check(err)
	write(a.caFile, "CERTIFICATE", der)
	root, err := x509.ParseCertificate(der)
	check(err)
	a.pool.AddCert(root)
	for i, files := range [][2]string{{a.certFile, a.keyFile}, {a.clientCert, a.clientKey}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(err)
		der, err := x509.CreateCertificate(rand.Reader, template(int64(i+2)), root, key.Public(), caKey)
		check(err)
		write(files[0], "CERTIFICATE", der)
		keyDER, err := x509.MarshalECPrivateKey(key)
		check(err)
		write(files[1], "EC PRIVATE KEY", keyDER)
	}
	a.pair, err = tls.LoadX509KeyPair(a.clientCert, a.clientKey)
	check(err)
	return a
}

// Client is the configuration of a client that the servers accept.
func (a *Authority) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.pool, Certificates: []tls.Certificate{a.pair}}
}

// Files are the same as PEM files: of the authority, and of a client's certificate and key.
func (a *Authority) Files() (ca, cert, key string) { return a.caFile, a.clientCert, a.clientKey }
