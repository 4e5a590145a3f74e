//go:build !no_raftlog

package main

import (
	"bytes"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/tlsfile"
)

// minSecret is the minimum length of a secret in bytes. A client that reaches the port can guess secrets.
const minSecret = 16

// checkRaftlog checks the settings that all commands need.
func checkRaftlog(s *settings) error {
	if _, err := s.raftlogConfig(); err != nil {
		return err
	}
	return s.checkElection(raftlog.CheckName)
}

// checkRaftlogPeer checks the settings that only a peer needs.
func checkRaftlogPeer(s *settings) error {
	c, err := s.raftlogConfig()
	if err != nil {
		return err
	}
	switch {
	case c.ID == "":
		return usage("--peer-id is required: which of --peers this process is")
	case c.Addr == "":
		return usage("--peer-id %s: not one of --peers", c.ID)
	case c.Dir == "":
		return usage("--data is required: a directory for this peer's data")
	}
	if err := checkAddress("peer-listen", c.Listen); err != nil {
		return err
	}
	if err := raftlog.CheckCandidate(s.instanceID, s.value); err != nil {
		return usage("--instance-id, --value: %w", err)
	}
	return nil
}

// raftlogConfig checks the settings and returns the configuration of a node. Addr is empty if --peer-id
// is not one of --peers.
func (s *settings) raftlogConfig() (c raftlog.Config, err error) {
	r := &s.raftlog
	peers, err := r.parsePeers()
	if err != nil {
		return c, err
	}
	c = raftlog.Config{
		Cluster: r.cluster, ID: r.peerID, Listen: r.listen, Dir: r.data, Peers: peers,
		Insecure: r.insecure, ElectionTimeout: s.sessionTimeout, Logger: s.log.WithGroup("raftlog"),
	}
	if i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.ID == r.peerID }); i >= 0 {
		c.Addr = peers[i].Addr
	}
	if c.Listen == "" {
		c.Listen = c.Addr
	}
	if r.cluster == "" {
		return c, usage("--cluster: it is empty")
	}
	if err := s.checkSessionTimeout(100 * time.Millisecond); err != nil {
		return c, err
	}
	if c.Secret, err = s.readSecret(); err != nil {
		return c, err
	}
	if c.TLS, err = s.peerTLS(); err != nil {
		return c, err
	}
	switch authenticated := len(c.Secret) > 0 || c.TLS != nil; {
	case r.insecure && authenticated:
		return c, usage("--insecure is not compatible with a secret or certificates: omit it, or use it without them, for example --insecure on a private network")
	case !r.insecure && !authenticated:
		return c, usage("peer authentication required: set --secret-file, ELECTOR_SECRET, or --ca-file, --cert-file and --key-file; or --insecure for none; for example --secret-file /etc/elector/secret")
	}
	return c, nil
}

func (r *raftlogSettings) parsePeers() ([]api.Peer, error) {
	var peers []api.Peer
	for _, text := range r.peers {
		id, addr, found := strings.Cut(strings.TrimSpace(text), "=")
		if !found || id == "" || !isHostPort(addr) {
			return nil, usage("--peers: %q is not of the form id=host:port", text)
		}
		for _, p := range peers {
			if p.ID == id || p.Addr == addr {
				return nil, usage("--peers: %s=%s and %s=%s have the same ID or address", p.ID, p.Addr, id, addr)
			}
		}
		peers = append(peers, api.Peer{ID: id, Addr: addr})
	}
	if len(peers) == 0 {
		return nil, usage("--peers is required: id=host:port,...")
	}
	return peers, nil
}

// readSecret returns the secret without line breaks at the end, or nil if no secret is set.
func (s *settings) readSecret() ([]byte, error) {
	r := &s.raftlog
	secret, source := []byte(r.secret), "--secret"
	if r.secretFile != "" {
		if r.secret != "" {
			return nil, usage("--secret-file and --secret (ELECTOR_SECRET): only one of them")
		}
		text, warning, err := cmdline.ReadPrivate(r.secretFile)
		if err != nil {
			return nil, usage("--secret-file: %w", err)
		}
		s.warnOnce("--secret-file", warning)
		secret, source = bytes.TrimRight(text, "\r\n"), "--secret-file "+r.secretFile
	} else if r.secret == "" {
		return nil, nil
	}
	if len(secret) < minSecret {
		return nil, usage("%s: it has %d bytes, and must have at least %d; for example the output of head -c 32 /dev/urandom | base64", source, len(secret), minSecret)
	}
	return secret, nil
}

// peerTLS returns the TLS configuration of peers, or nil if no certificates are set.
func (s *settings) peerTLS() (*tls.Config, error) {
	c, err := s.tls.files.PeerConfig(s.raftlog.allowedNames)
	if err == nil && c == nil && s.tls.enabled {
		err = tlsfile.ErrIncomplete
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
