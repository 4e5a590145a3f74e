// Package tlsfile makes the TLS configurations of the commands elector and raftlog from PEM files.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files are the values of the flags --ca-file, --cert-file and --key-file, empty if they are not
// set.
type Files struct{ CA, Cert, Key string }

// ErrIncomplete is the error for a peer that does not have all of the files.
var ErrIncomplete = errors.New("--ca-file, --cert-file and --key-file belong together, because peers show certificates to each other; for example --ca-file ca.pem --cert-file peer.pem --key-file peer-key.pem")

// Config returns the configuration of a client. Without CA it trusts the authorities of the
// system. Errors name the flags.
func (f Files) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file %s: no certificate in it", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert-file and --key-file belong together")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert-file, --key-file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// PeerConfig returns the configuration of a peer, which shows its certificate to the peers that it
// connects to and to those that connect to it. If there are names, only certificates with one of
// them are accepted, because an authority often issues certificates to a whole company. It returns
// nil if no file and no name is set.
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
