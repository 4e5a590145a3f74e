package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// tlsConfig is nil without TLS.
func (s *settings) tlsConfig(on bool) (*tls.Config, error) {
	if !on && s.caFile == "" && s.certFile == "" && s.keyFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, usage("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--ca-file %s: no certificate in it", s.caFile)
		}
	}
	if (s.certFile == "") != (s.keyFile == "") {
		return nil, usage("--cert-file and --key-file belong together")
	}
	if s.certFile != "" {
		pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return nil, usage("--cert-file, --key-file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
