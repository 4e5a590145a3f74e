package tlsfile

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// certificate is a certificate and its key in files that may be replaced at any time. Its methods can
// be called concurrently.
type certificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	loaded  *tls.Certificate
	warning string         // about the mode of the key file
	states  [2]os.FileInfo // of the files when loaded was read
}

// load returns the certificate in the files, which it reads only if they were changed. If that fails, it
// returns the error and the certificate that was read last, or nil. While files are replaced, certificate
// and key may not match for a moment.
func (c *certificate) load() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var states [2]os.FileInfo
	changed := c.loaded == nil
	for i, name := range []string{c.certFile, c.keyFile} {
		state, err := os.Stat(name) // before the file is read, so a later change is noticed by the next call
		if err != nil {
			return c.loaded, fmt.Errorf("--cert-file, --key-file: %w", err)
		}
		states[i], changed = state, changed || !equalStates(state, c.states[i])
	}
	if !changed {
		return c.loaded, nil
	}
	pair, warning, err := c.read()
	if err != nil {
		return c.loaded, err
	}
	c.loaded, c.warning, c.states = &pair, warning, states
	return c.loaded, nil
}

// read reads the files. warning is not empty if all users can read the key.
func (c *certificate) read() (pair tls.Certificate, warning string, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return pair, "", fmt.Errorf("--cert-file: %w", err)
	}
	key, warning, err := cmdline.ReadPrivate(c.keyFile)
	if err != nil {
		return pair, "", fmt.Errorf("--key-file: %w", err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, "", fmt.Errorf("--cert-file %s, --key-file %s: %w", c.certFile, c.keyFile, err)
	}
	return pair, warning, nil
}

// equalStates reports whether a file was not changed between two calls of Stat.
func equalStates(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// getCertificate is a [tls.Config.GetCertificate].
func (c *certificate) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, _ := c.load() // Files.Monitor logs errors
	return pair, nil
}

// getClientCertificate is a [tls.Config.GetClientCertificate]. As with tls.Config.Certificates, a server
// that does not accept the authority of the certificate receives none.
func (c *certificate) getClientCertificate(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, _ := c.load()
	if request.SupportsCertificate(pair) != nil {
		return new(tls.Certificate), nil
	}
	return pair, nil
}
