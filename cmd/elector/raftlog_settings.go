//go:build !no_raftlog

package main

import (
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
)

// checkRaftlog checks the settings that all commands need. The credentials of clients are checked when the
// client is opened, and those of peers by checkRaftlogPeer.
func checkRaftlog(s *settings) error {
	if _, err := s.raftlogConfig(); err != nil {
		return err
	}
	return s.checkElection(raftlog.CheckName)
}

// checkRaftlogPeer checks the settings that only a peer needs.
func checkRaftlogPeer(s *settings) error {
	c, err := s.raftlogPeerConfig()
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

// raftlogConfig checks the settings that peers and clients have in common, and returns the configuration of a
// node without secrets. Addr is empty if --peer-id is not one of --peers.
func (s *settings) raftlogConfig() (c raftlog.Config, err error) {
	r := &s.raftlog
	peers, err := r.parsePeers()
	if err != nil {
		return c, err
	}
	c = raftlog.Config{
		Cluster: r.cluster, ID: r.peerID, Listen: r.listen, Dir: r.data, Peers: peers,
		AllowedNames: r.access.AllowedNames, AllowedClientNames: r.access.AllowedClientNames, Insecure: r.access.Insecure,
		ElectionTimeout: s.sessionTimeout, Logger: s.log.WithGroup("raftlog"),
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
	if s.tls.enabled && s.tls.files == (credentialfile.Certificates{}) {
		return c, usage("%w", credentialfile.ErrIncomplete)
	}
	return c, nil
}

// raftlogPeerConfig returns the configuration of a peer.
func (s *settings) raftlogPeerConfig() (raftlog.Config, error) {
	c, err := s.raftlogConfig()
	if err != nil {
		return c, err
	}
	secrets, certificates, err := s.raftlog.access.Peer(s.tls.files, s.log)
	if err != nil {
		return c, usage("%w", err)
	}
	if c.TLS = certificates; secrets != nil {
		c.Secrets = func() (now api.Secrets) {
			now.Peers, now.Clients = secrets()
			return now
		}
	}
	return c, nil
}

// raftlogClientConfig returns the configuration of a client of the peers.
func (s *settings) raftlogClientConfig() (client.Config, error) {
	c, err := s.raftlogConfig()
	if err != nil {
		return client.Config{}, err
	}
	secret, certificates, err := s.raftlog.access.Client(s.tls.files)
	if err != nil {
		return client.Config{}, usage("%w", err)
	}
	return client.Config{Cluster: c.Cluster, Peers: c.Peers, Refresh: -1, GetSecret: secret, TLS: certificates, AllowedNames: c.AllowedNames, Insecure: c.Insecure}, nil
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
