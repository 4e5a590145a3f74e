// Package tlsfile reads TLS configurations from PEM files, for the commands elector and raftlog.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files contains the values of the flags --ca-file, --cert-file and --key-file. An empty value means
// that the flag is not set.
type Files struct{ CA, Cert, Key string }

// ErrIncomplete is returned for a peer if one of the files is not set.
var ErrIncomplete = errors.New("--ca-file, --cert-file and --key-file belong together, because peers show certificates to each other; for example --ca-file ca.pem --cert-file peer.pem --key-file peer-key.pem")

// Config returns the configuration of a client. If CA is empty, the client trusts the authorities of
// the system. Each handshake uses the current certificate in the files Cert and Key; the file CA is
// read only once. Errors begin with the name of the flag.
func (f Files) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file %s: the file contains no certificate", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert-file and --key-file belong together")
	}
	if f.Cert != "" {
		pair := f.certificate()
		if _, err := pair.load(); err != nil {
			return nil, err
		}
		c.GetCertificate, c.GetClientCertificate = pair.getCertificate, pair.getClientCertificate
	}
	return c, nil
}

func (f Files) certificate() *certificate { return &certificate{certFile: f.Cert, keyFile: f.Key} }

// PeerConfig returns the configuration of a peer for both directions: each side presents its
// certificate. If names is not empty, only certificates with one of the names are accepted, because
// an authority often issues certificates for a whole company. PeerConfig returns nil if neither
// files nor names are set.
func (f Files) PeerConfig(names []string) (*tls.Config, error) {
	switch {
	case f == Files{} && len(names) == 0:
		return nil, nil
	case f == Files{}:
		return nil, errors.New("--allowed-names restricts certificates: set --ca-file, --cert-file and --key-file as well, for example --ca-file ca.pem --cert-file peer.pem --key-file peer-key.pem --allowed-names node1.example.com")
	case f.CA == "" || f.Cert == "" || f.Key == "":
		return nil, ErrIncomplete
	}
	c, err := f.Config()
	if err != nil {
		return nil, err
	}
	c.MinVersion, c.ClientCAs, c.ClientAuth = tls.VersionTLS13, c.RootCAs, tls.RequireAndVerifyClientCert
	requireName(c, names)
	return c, nil
}
