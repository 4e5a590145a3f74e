package cmdline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// authorities is a file with the certificates of authorities, which may be replaced at any time.
type authorities = replaceable[x509.CertPool]

func (f Certificates) authorities() *authorities {
	return &authorities{flags: "--ca-file", files: []string{f.CA}, read: func() (*x509.CertPool, string, error) {
		pem, err := ReadFile(f.CA)
		if err != nil {
			return nil, "", fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("--ca-file %s: the file contains no certificate", f.CA)
		}
		return pool, "", nil
	}}
}

// trustCurrentAuthorities makes a client trust the authorities that a file contains at the time of each handshake. It replaces
// the verification by crypto/tls, in which the authorities of a configuration cannot be changed.
func trustCurrentAuthorities(c *tls.Config, file *authorities) {
	c.RootCAs = nil
	c.InsecureSkipVerify = true // VerifyConnection verifies the certificate.
	c.VerifyConnection = func(s tls.ConnectionState) error {
		pool, _ := file.load() // ignore the error, which Certificates.Monitor logs
		return verifyServer(s, pool)
	}
}

// verifyServer returns an error unless the server has a valid certificate of an authority for
// s.ServerName.
func verifyServer(s tls.ConnectionState, pool *x509.CertPool) error {
	if s.ServerName == "" || len(s.PeerCertificates) == 0 {
		return errors.New("the server has no name or no certificate")
	}
	options := x509.VerifyOptions{Roots: pool, DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}
