package cmdline

import (
	"crypto/tls"
	"errors"

	"github.com/spf13/pflag"
)

// Certificates contains the values of the flags --ca-file, --cert-file and --key-file. An empty value means
// that the flag is not set.
type Certificates struct{ CA, Cert, Key string }

// Register registers the flags.
func (f *Certificates) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.CA, "ca-file", "", "certificates of the authorities of servers and peers, PEM; enables TLS")
	flags.StringVar(&f.Cert, "cert-file", "", "certificate of this client or peer, PEM")
	flags.StringVar(&f.Key, "key-file", "", "key of --cert-file, PEM")
}

// ErrIncomplete is returned for a peer if one of the files is not set.
var ErrIncomplete = errors.New("--ca-file, --cert-file and --key-file belong together, because peers show certificates to each other; for example --ca-file ca.pem --cert-file peer.pem --key-file peer-key.pem")

// Config returns the configuration of a client. If CA is empty, the client trusts the authorities of
// the system. Each handshake uses the current content of the files. The dialer must use ForServer of
// package transport: servers without a name are rejected. Errors begin with the name of the flag.
func (f Certificates) Config() (*tls.Config, error) {
	c, trusted, err := f.loadConfig()
	if err == nil && trusted != nil {
		trustCurrentAuthorities(c, trusted)
	}
	return c, err
}

// FixedConfig returns the configuration of a client whose dialer does not use ForServer: the file CA is
// read only once.
func (f Certificates) FixedConfig() (*tls.Config, error) {
	c, _, err := f.loadConfig()
	return c, err
}

// loadConfig returns a configuration with the contents of the files. trusted contains the certificates
// of the authorities; it is nil if CA is empty.
func (f Certificates) loadConfig() (c *tls.Config, trusted *authorities, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		trusted = f.authorities()
		if c.RootCAs, err = trusted.load(); err != nil {
			return nil, nil, err
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, nil, errors.New("--cert-file and --key-file belong together")
	}
	if f.Cert != "" {
		pair := f.certificate()
		if _, err := pair.load(); err != nil {
			return nil, nil, err
		}
		c.GetCertificate, c.GetClientCertificate = pair.getCertificate, pair.getClientCertificate
	}
	return c, trusted, nil
}

// PeerConfig returns the configuration of a peer of a Raft log, or of its client, for both directions:
// each side presents its certificate. names are the names of the certificates to accept, which the
// caller checks. Names without files are an error. PeerConfig returns nil if neither files nor names
// are set.
func (f Certificates) PeerConfig(names []string) (*tls.Config, error) {
	switch {
	case f == Certificates{} && len(names) == 0:
		return nil, nil
	case f == Certificates{}:
		return nil, errors.New("--allowed-names and --allowed-client-names restrict certificates: set --ca-file, --cert-file and --key-file as well, for example --ca-file ca.pem --cert-file peer.pem --key-file peer-key.pem --allowed-names node1.example.com")
	case f.CA == "" || f.Cert == "" || f.Key == "":
		return nil, ErrIncomplete
	}
	c, trusted, err := f.loadConfig()
	if err != nil {
		return nil, err
	}
	c.MinVersion = tls.VersionTLS13
	server := c.Clone()
	server.ClientCAs, server.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	trustCurrentAuthorities(c, trusted)
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := server.Clone()
		current.ClientCAs, _ = trusted.load()
		return current, nil
	}
	return c, nil
}
