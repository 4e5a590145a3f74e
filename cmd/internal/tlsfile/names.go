package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// requireName configures c to accept only peers whose certificate has one of the names, as a DNS
// name, an IP address, a URI, or the common name of its subject, in addition to the other
// verification. It does nothing if names is empty.
func requireName(c *tls.Config, names []string) {
	if len(names) == 0 {
		return
	}
	verify := c.VerifyConnection
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if verify != nil {
			if err := verify(s); err != nil {
				return err
			}
		}
		if len(s.PeerCertificates) == 0 {
			return fmt.Errorf("no certificate: one for %s is required", strings.Join(names, " or "))
		}
		found := certificateNames(s.PeerCertificates[0])
		if slices.ContainsFunc(found, func(name string) bool { return slices.Contains(names, name) }) {
			return nil
		}
		return fmt.Errorf("the certificate is for %s, which is not one of the allowed names %s", strings.Join(found, ", "), strings.Join(names, ", "))
	}
}

// certificateNames returns the names that a certificate is issued for.
func certificateNames(c *x509.Certificate) []string {
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
