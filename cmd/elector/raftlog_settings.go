//go:build !no_raftlog

package main

// The flags of the backend raftlog, and what is refused before anything is started.

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/tlsfile"
)

// leastSecret is how many bytes a secret has at least: who reaches a port can try guesses.
const leastSecret = 16

// config returns what the node is opened with. Addr is empty if --peer-id is not one of --peers.
func (r *raftlogSettings) config(s *settings) (c raftlog.Config, err error) {
	peers, err := r.parsePeers()
	if err != nil {
		return c, err
	}
	c = raftlog.Config{
		Cluster: r.cluster, ID: r.peerID, Listen: r.listen, Dir: r.data, Peers: peers,
		Insecure: r.insecure, ElectionTimeout: s.zookeeper.session, Logger: s.log.WithGroup("raftlog"),
	}
	if own := slices.IndexFunc(peers, func(p api.Peer) bool { return p.ID == r.peerID }); own >= 0 {
		c.Addr = peers[own].Addr
	}
	if c.Listen == "" {
		c.Listen = c.Addr
	}
	if r.cluster == "" {
		return c, usage("--cluster: it is empty")
	}
	if err := s.checkSession(100 * time.Millisecond); err != nil {
		return c, err
	}
	if c.Secret, err = r.readSecret(); err != nil {
		return c, err
	}
	if c.TLS, err = s.peerTLS(); err != nil {
		return c, err
	}
	switch proven := len(c.Secret) > 0 || c.TLS != nil; {
	case r.insecure && proven:
		return c, usage("--insecure is not compatible with a secret or certificates: leave it out, or use it without them, for example --insecure on a private network")
	case !r.insecure && !proven:
		return c, usage("peer authentication required: set --secret-file, ELECTOR_SECRET, or --ca-file, --cert-file and --key-file; or --insecure for none; for example --secret-file /etc/elector/secret")
	}
	return c, nil
}

func (r *raftlogSettings) parsePeers() ([]api.Peer, error) {
	var peers []api.Peer
	for _, text := range r.peers {
		id, addr, found := strings.Cut(strings.TrimSpace(text), "=")
		host, port, err := net.SplitHostPort(addr)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if !found || id == "" || err != nil || portErr != nil || host == "" || n == 0 {
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

// readSecret is nil without one. Line ends after it do not count.
func (r *raftlogSettings) readSecret() ([]byte, error) {
	secret, from := []byte(r.secret), "--secret"
	if r.secretFile != "" {
		if r.secret != "" {
			return nil, usage("--secret-file and --secret (ELECTOR_SECRET): only one of them")
		}
		text, err := os.ReadFile(r.secretFile)
		if err != nil {
			return nil, usage("--secret-file: %w", err)
		}
		secret, from = bytes.TrimRight(text, "\r\n"), "--secret-file "+r.secretFile
	} else if r.secret == "" {
		return nil, nil
	}
	if len(secret) < leastSecret {
		return nil, usage("%s: it has %d bytes, and must have at least %d; for example the output of head -c 32 /dev/urandom | base64", from, len(secret), leastSecret)
	}
	return secret, nil
}

// peerTLS is nil without certificates.
func (s *settings) peerTLS() (*tls.Config, error) {
	c, err := s.tlsFiles().PeerConfig(s.raftlog.allowedNames)
	if err == nil && c == nil && s.zookeeper.tls {
		err = tlsfile.ErrIncomplete
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
