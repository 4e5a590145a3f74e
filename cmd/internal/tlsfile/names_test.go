package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequireName fails if a peer with another certificate, or without one, is accepted.
func TestRequireName(t *testing.T) {
	uri, err := url.Parse("spiffe://example.org/orders")
	require.NoError(t, err)
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{{
		Subject: pkix.Name{CommonName: "orders"}, DNSNames: []string{"a.example.org"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, URIs: []*url.URL{uri},
	}}}
	verify := func(s tls.ConnectionState, names ...string) error {
		var c tls.Config
		requireName(&c, names)
		return c.VerifyConnection(s)
	}
	for _, name := range []string{"orders", "a.example.org", "10.0.0.1", "spiffe://example.org/orders"} {
		require.NoError(t, verify(state, "other", name))
	}
	require.ErrorContains(t, verify(state, "billing", "b.example.org"), "the certificate is for a.example.org, 10.0.0.1, spiffe://example.org/orders, orders, which is not one of the allowed names billing, b.example.org")
	require.ErrorContains(t, verify(tls.ConnectionState{}, "orders"), "no certificate")
	var c tls.Config
	requireName(&c, nil)
	require.Nil(t, c.VerifyConnection)
}
