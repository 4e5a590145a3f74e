//go:build linux

package elector

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func (a *authority) client(name string) {
	a.issue(name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// terminator speaks TLS before a server, and takes only clients with a certificate of a.
// refused has why others were not taken.
func terminator(t *testing.T, a *authority, to string) (addr string, refused chan error) {
	a.issue("server", &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	require.NoError(t, err)
	refused = make(chan error, 1000)
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				if err := in.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
					refused <- err
					return
				}
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				back := make(chan struct{})
				go func() { defer close(back); _, _ = io.Copy(in, out); in.Close() }()
				_, _ = io.Copy(out, in)
				out.Close()
				<-back
			})
		}
	})
	return listener.Addr().String(), refused
}

// TestClientCertificate: servers that ask for one are given it, and without, or with one
// of somebody else's, there is no session. The servers of these tests do not speak TLS, so
// another process's does before them.
func TestClientCertificate(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	a.client("elector")
	stranger.client("elector")
	addr, refused := terminator(t, a, servers.Addr(0))
	e := newElection(t)
	over := func(args ...string) []string {
		return slices.Concat([]string{"--zookeeper-servers", addr, "--ca-file", a.file("ca.pem"), "--listen", "127.0.0.1:0"}, args, program)
	}
	for id, args := range map[string][]string{
		"nobody":   nil,
		"stranger": {"--cert-file", stranger.file("elector.pem"), "--key-file", stranger.file("elector.key")},
	} {
		p := e.run(checked(t), id, over(args...)...)
		ready := p.page("/readyz")
		require.ErrorContains(t, <-refused, "certificate")
		require.Equal(t, http.StatusServiceUnavailable, code(ready()))
		p.hands()
	}
	// The other way round: servers that cannot be trusted are told nothing.
	p := e.run(checked(t), "careful", append([]string{"--zookeeper-servers", addr, "--tls"}, program...)...)
	p.says("certificate signed by unknown authority")
	p.hands()

	p = e.run(checked(t), "a", over("--cert-file", a.file("elector.pem"), "--key-file", a.file("elector.key"))...)
	e.does("a", works, 1)
	p.hands()
	require.Equal(t, []string{"a"}, e.order())
}
