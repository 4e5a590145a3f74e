package cmdline

import (
	"crypto/tls"
	"fmt"
)

// certificate is a certificate and its key in two files, which may be replaced at any time.
type certificate struct{ replaceable[tls.Certificate] }

func (f Certificates) certificate() *certificate {
	c := new(certificate)
	c.flags, c.files = "--cert-file, --key-file", []string{f.Cert, f.Key}
	c.read = func() (*tls.Certificate, string, error) {
		pair, warning, err := f.readCertificate()
		return &pair, warning, err
	}
	return c
}

// readCertificate reads the certificate and its key. The warning is not empty if all users can read the file of the
// key.
func (f Certificates) readCertificate() (pair tls.Certificate, warning string, err error) {
	cert, err := ReadFile(f.Cert)
	if err != nil {
		return pair, "", fmt.Errorf("--cert-file: %w", err)
	}
	key, warning, err := ReadPrivate(f.Key)
	if err != nil {
		return pair, "", fmt.Errorf("--key-file: %w", err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, "", fmt.Errorf("--cert-file %s, --key-file %s: %w", f.Cert, f.Key, err)
	}
	return pair, warning, nil
}

// getCertificate returns the current certificate. It implements tls.Config.GetCertificate.
func (c *certificate) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, _ := c.load() // ignore the error, which Certificates.Monitor logs
	return pair, nil
}

// getClientCertificate returns the current certificate. It implements tls.Config.GetClientCertificate. As with
// tls.Config.Certificates, a server that does not accept the authority of the certificate receives an empty
// certificate.
func (c *certificate) getClientCertificate(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, _ := c.load()
	if request.SupportsCertificate(pair) != nil {
		return new(tls.Certificate), nil
	}
	return pair, nil
}
