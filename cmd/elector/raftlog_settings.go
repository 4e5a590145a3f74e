//go:build !no_raftlog

package main

import (
	"crypto/tls"
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
	c.AllowedNames, c.AllowedClientNames = r.allowedNames, r.allowedClientNames
	c.TLS, err = s.peerTLS()
	return c, err
}

// raftlogPeerConfig returns the configuration of a peer.
func (s *settings) raftlogPeerConfig() (c raftlog.Config, err error) {
	if c, err = s.raftlogConfig(); err != nil {
		return c, err
	}
	r := &s.raftlog
	peers, err := s.readSecrets("secret", r.secretFile, r.secret)
	if err != nil {
		return c, err
	}
	clients, err := s.readSecrets("client-secret", r.clientSecretFile, r.clientSecret)
	if err != nil {
		return c, err
	}
	if peers == nil && clients != nil {
		return c, usage("--client-secret-file: there is a secret of clients, and none of peers, which need another one: set --secret-file or ELECTOR_SECRET as well, for example --secret-file /etc/elector/secret")
	}
	roles, err := credentialfile.NewRoles(peers, clients, s.log)
	if err != nil {
		return c, usage("%w", err)
	}
	if peers != nil {
		c.Secrets = func() (now api.Secrets) {
			now.Peers, now.Clients = roles.Current()
			return now
		}
	}
	return c, s.checkAuthenticated(peers != nil, c.TLS != nil, "--secret-file, ELECTOR_SECRET", "--secret-file /etc/elector/secret")
}

// raftlogClientConfig returns the configuration of a client of the peers. It does not read the secret of peers,
// which is not valid for clients.
func (s *settings) raftlogClientConfig() (client.Config, error) {
	c, err := s.raftlogConfig()
	if err != nil {
		return client.Config{}, err
	}
	r := &s.raftlog
	secrets, err := s.readSecrets("client-secret", r.clientSecretFile, r.clientSecret)
	if err != nil {
		return client.Config{}, err
	}
	if secrets == nil && (r.secret != "" || r.secretFile != "") {
		return client.Config{}, usage("this command is a client, and the secret of peers is not valid for clients: set --client-secret-file or ELECTOR_CLIENT_SECRET, with the secret that run accepts by --client-secret-file, for example --client-secret-file /etc/elector/client-secret")
	}
	config := client.Config{Cluster: c.Cluster, Peers: c.Peers, Refresh: -1, TLS: c.TLS, AllowedNames: c.AllowedNames, Insecure: c.Insecure}
	if secrets != nil {
		config.GetSecret = secrets.First
	}
	return config, s.checkAuthenticated(secrets != nil, c.TLS != nil, "--client-secret-file, ELECTOR_CLIENT_SECRET", "--client-secret-file /etc/elector/client-secret")
}

// checkAuthenticated checks that a process is authenticated in some way, unless --insecure is set.
func (s *settings) checkAuthenticated(secret, certificates bool, secretSettings, example string) error {
	switch authenticated := secret || certificates; {
	case s.raftlog.insecure && authenticated:
		return usage("--insecure is not compatible with a secret or certificates: omit it, or use it without them, for example --insecure on a private network")
	case !s.raftlog.insecure && !authenticated:
		return usage("peer authentication required: set %s, or --ca-file, --cert-file and --key-file; or --insecure for none; for example %s", secretSettings, example)
	}
	return nil
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

// readSecrets returns the secrets of a role, or nil if none is set. name is the name of the flag of the secret.
func (s *settings) readSecrets(name, file, value string) (*credentialfile.Secrets, error) {
	flag := "--" + name
	if file != "" {
		if value != "" {
			return nil, usage("%s-file and %s (ELECTOR_%s): only one of them", flag, flag, strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		}
		flag += "-file"
	}
	secrets, warning, err := credentialfile.ReadSecrets(credentialfile.SecretFile{Flag: flag, Name: file}, value, s.log)
	if err != nil {
		return nil, usage("%w", err)
	}
	s.warnOnce(flag, warning)
	return secrets, nil
}

// peerTLS returns the TLS configuration of peers, or nil if no certificates are set.
func (s *settings) peerTLS() (*tls.Config, error) {
	c, err := s.tls.files.PeerConfig(slices.Concat(s.raftlog.allowedNames, s.raftlog.allowedClientNames))
	if err == nil && c == nil && s.tls.enabled {
		err = credentialfile.ErrIncomplete
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
