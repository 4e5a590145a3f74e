//go:build !no_raftlog

package main

import (
	"cmp"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// checkRaftlog checks the raftlog settings that all commands need. The credentials of clients are checked when the
// client is opened, and the credentials of peers by checkRaftlogPeer.
func checkRaftlog(s *settings) error {
	if _, err := s.raftlogConfig(); err != nil {
		return err
	}
	return s.checkElection(raftlog.CheckName)
}

func raftlogElectionKeys(s *settings) []string {
	var servers []string
	for _, p := range s.raftlog.Peers {
		servers = append(servers, p.Addr)
	}
	return s.electionKeysAt(servers)
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
		return usage("--dir is required: a directory for this peer's data")
	}
	if err := checkAddress("peer-listen", c.Listen); err != nil {
		return err
	}
	if err := raftlog.CheckCandidate(s.instanceID, s.value); err != nil {
		return usage("--instance-id, --value: %w", err)
	}
	return nil
}

// raftlogConfig checks the settings that peers and clients have in common, and returns the configuration of a node
// without secrets. The field Addr is empty if --peer-id is not one of --peers.
func (s *settings) raftlogConfig() (c raftlog.Config, err error) {
	r := &s.raftlog
	switch {
	case len(r.Peers) == 0:
		return c, usage("--peers is required: id=host:port,...")
	case r.Cluster == "":
		return c, usage("--cluster is empty: give the name that all peers of the cluster have")
	}
	c = raftlog.Config{
		Cluster: r.Cluster, ID: r.ID, Addr: r.Addr(), Listen: cmp.Or(r.Listen, r.Addr()), Peers: r.Peers,
		AllowedNames: r.AllowedNames, AllowedClientNames: r.AllowedClientNames, Insecure: r.Insecure,
		ElectionTimeout: s.sessionTimeout, Logger: s.log.WithGroup("raftlog"),
	}
	if c.Dir, err = r.ExpandPath(r.Dir); err != nil {
		return c, usage("--dir: %w", err)
	}
	if err := s.checkSessionTimeout(100 * time.Millisecond); err != nil {
		return c, err
	}
	if s.tls.enabled && s.tls.files == (cmdline.Certificates{}) {
		return c, usage("%w", cmdline.ErrIncomplete)
	}
	return c, nil
}

// raftlogPeerConfig returns the configuration of a peer.
func (s *settings) raftlogPeerConfig() (raftlog.Config, error) {
	c, err := s.raftlogConfig()
	if err != nil {
		return c, err
	}
	if c.Secrets, c.TLS, err = s.raftlog.Peer(s.tls.files, s.log); err != nil {
		return c, usage("%w", err)
	}
	return c, nil
}

// raftlogClientConfig returns the configuration of a client of the peers.
func (s *settings) raftlogClientConfig() (client.Config, error) {
	c, err := s.raftlogConfig()
	if err != nil {
		return client.Config{}, err
	}
	secret, certificates, err := s.raftlog.Client(s.tls.files)
	if err != nil {
		return client.Config{}, usage("%w", err)
	}
	return client.Config{Cluster: c.Cluster, Peers: c.Peers, Refresh: -1, GetSecret: secret, TLS: certificates, AllowedNames: c.AllowedNames, Insecure: c.Insecure}, nil
}
