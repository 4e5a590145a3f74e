package main

import (
	"crypto/tls"

	"github.com/go-leaderelection/leaderelection/cmd/internal/tlsfile"
)

func (s *settings) tlsFiles() tlsfile.Files {
	return tlsfile.Files{CA: s.caFile, Cert: s.certFile, Key: s.keyFile}
}

// tlsConfig is nil without TLS.
func (s *settings) tlsConfig(on bool) (*tls.Config, error) {
	files := s.tlsFiles()
	if !on && files == (tlsfile.Files{}) {
		return nil, nil
	}
	c, err := files.Config()
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
