package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// requireName makes both sides of c's connections verify that the other side's certificate has one
// of the names: as a DNS name, an IP address, a URI, or the common name of its subject. It does
// nothing if there are no names. The authority is verified as before.
func requireName(c *tls.Config, names []string) {
	if len(names) == 0 {
		return
	}
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return fmt.Errorf("no certificate: one for %s is required", strings.Join(names, " or "))
		}
		has := of(s.PeerCertificates[0])
		if slices.ContainsFunc(has, func(name string) bool { return slices.Contains(names, name) }) {
			return nil
		}
		return fmt.Errorf("the certificate is for %s, which is not one of the allowed names %s", strings.Join(has, ", "), strings.Join(names, ", "))
	}
}

// of returns the names of a certificate.
func of(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
