package main

// The flags of the backend raftlog, and what is refused before anything is started.

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// leastSecret is how many bytes a secret has at least: who reaches a port can try guesses.
const leastSecret = 16

type raftlogSettings struct {
	peers                []string
	peerID, data, listen string
	cluster              string
	secret, secretFile   string
	insecure             bool
}

func (r *raftlogSettings) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&r.peers, "peers", nil, "all peers of backend raftlog, the same at each: id=host:port,...")
	flags.StringVar(&r.peerID, "peer-id", "", "which of --peers this process is")
	flags.StringVar(&r.data, "data", "", "folder of this peer's data, its own; it is made if it is missing")
	flags.StringVar(&r.listen, "peer-listen", "", "host:port where this peer listens to the others (default: its address in --peers)")
	flags.StringVar(&r.cluster, "cluster", "elector", "name of the peers' cluster, the same at each")
	flags.StringVar(&r.secretFile, "secret-file", "", "file with the secret that all peers share, 16 random bytes at least; connections are encrypted then")
	flags.StringVar(&r.secret, "secret", "", "the secret itself; better given as ELECTOR_SECRET, or by --secret-file")
	flags.BoolVar(&r.insecure, "insecure", false, "believe everybody who reaches a peer's port, and encrypt nothing")
}

// config is what the node is opened with.
func (r *raftlogSettings) config(s *settings) (c raftlog.Config, err error) {
	peers, err := r.parsePeers()
	if err != nil {
		return c, err
	}
	c = raftlog.Config{
		Cluster: r.cluster, ID: r.peerID, Listen: r.listen, Dir: r.data, Peers: peers,
		Insecure: r.insecure, ElectionTimeout: s.zookeeper.session, Logger: s.log.WithGroup("raftlog"),
	}
	own := slices.IndexFunc(peers, func(p raftlog.Peer) bool { return p.ID == r.peerID })
	switch {
	case r.peerID == "":
		return c, usage("--peer-id is required: which of --peers this process is")
	case own < 0:
		return c, usage("--peer-id %s: not one of --peers", r.peerID)
	case r.data == "":
		return c, usage("--data is required: a folder for this peer's data")
	case r.cluster == "":
		return c, usage("--cluster: it is empty")
	case c.ElectionTimeout < 100*time.Millisecond || c.ElectionTimeout > time.Hour:
		return c, usage("--session-timeout %v: not from 100ms to 1h", c.ElectionTimeout)
	}
	c.Addr = peers[own].Addr
	if c.Listen == "" {
		c.Listen = c.Addr
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return c, usage("--peer-listen %s: not of the form host:port", c.Listen)
	}
	if c.Secret, err = r.readSecret(); err != nil {
		return c, err
	}
	if c.TLS, err = s.peerTLS(); err != nil {
		return c, err
	}
	switch proven := len(c.Secret) > 0 || c.TLS != nil; {
	case r.insecure && proven:
		return c, usage("--insecure goes with neither a secret nor certificates: leave it out")
	case !r.insecure && !proven:
		return c, usage("peer authentication required: set --secret-file, ELECTOR_SECRET, or --ca-file, --cert-file and --key-file; or --insecure for none")
	}
	return c, nil
}

func (r *raftlogSettings) parsePeers() ([]raftlog.Peer, error) {
	var peers []raftlog.Peer
	for _, text := range r.peers {
		id, addr, found := strings.Cut(strings.TrimSpace(text), "=")
		host, port, err := net.SplitHostPort(addr)
		if !found || id == "" || err != nil || host == "" || port == "" || port == "0" {
			return nil, usage("--peers: %q is not of the form id=host:port", text)
		}
		for _, p := range peers {
			if p.ID == id || p.Addr == addr {
				return nil, usage("--peers: %s=%s and %s=%s have the same ID or address", p.ID, p.Addr, id, addr)
			}
		}
		peers = append(peers, raftlog.Peer{ID: id, Addr: addr})
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
		return nil, usage("%s: %d bytes, of %d at least: head -c 32 /dev/urandom | base64 makes a good one", from, len(secret), leastSecret)
	}
	return secret, nil
}

// peerTLS is nil without certificates. A peer shows its own to those it calls and to those who
// call.
func (s *settings) peerTLS() (*tls.Config, error) {
	if !s.zookeeper.tls && s.caFile == "" && s.certFile == "" && s.keyFile == "" {
		return nil, nil
	}
	if s.caFile == "" || s.certFile == "" || s.keyFile == "" {
		return nil, usage("--ca-file, --cert-file and --key-file belong together: peers show certificates to each other")
	}
	c, err := s.tlsConfig(true)
	if err != nil {
		return nil, err
	}
	c.MinVersion, c.ClientCAs, c.ClientAuth = tls.VersionTLS13, c.RootCAs, tls.RequireAndVerifyClientCert
	return c, nil
}
