//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority is who signs certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{dir: t.TempDir(), key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name), text, 0o600))
}

// flags makes a certificate, and returns the flags by which it is used.
func (a *authority) flags(t *testing.T, name string) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	a.write(t, name+".pem", "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	a.write(t, name+".key", "EC PRIVATE KEY", der)
	path := func(name string) string { return filepath.Join(a.dir, name) }
	return []string{"--ca-file", path("ca.pem"), "--cert-file", path(name + ".pem"), "--key-file", path(name + ".key")}
}

func TestCertificates(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.Setenv(secretVariable, "")
	text := fmt.Sprintf("cluster: test\ndir: %s/{id}\nelection-timeout: 500ms\npeers: ['%s/a', '%s/b']\n", c.dir, c.addr("a"), c.addr("b"))
	require.NoError(t, os.WriteFile(c.file, []byte(text), 0o600))
	ours, others := newAuthority(t), newAuthority(t)
	c.start("a", ours.flags(t, "a")...)
	c.start("b", ours.flags(t, "b")...)
	mine := ours.flags(t, "me")
	c.ok(append([]string{"propose", "by certificate"}, mine...)...)
	c.ok(append([]string{"status", "--once"}, mine...)...)
	r := c.run(append([]string{"propose", "no", "-t", "2s"}, others.flags(t, "you")...)...)
	require.Equal(t, exitFailed, r.code, r.log)
	r = c.run("propose", "no", "-k", secret, "-t", "2s")
	require.Equal(t, exitFailed, r.code, r.log)
	r = c.run(append([]string{"propose", "no"}, mine[:4]...)...)
	require.Equal(t, exitUsage, r.code, r.log)
	require.Contains(t, r.log, "belong together")
}
