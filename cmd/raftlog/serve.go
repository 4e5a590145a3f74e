package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const serveHelp = `Run a peer until SIGTERM, SIGINT, SIGHUP or SIGQUIT. Then the peer transfers its leadership, if it
is the leader, and exits; another signal, at least a second later, ends it immediately. All updates
that it has confirmed are on disk. SIGHUP or SIGINT has no effect if it was ignored at the start, as
by nohup. The peer never waits for its log: if standard error is not read, it drops log lines, and
logs their number when it can write again.

The files of --cert-file, --key-file and --ca-file can be replaced while the peer runs: each new
connection uses their current content. The peer logs a warning once a day if less than a quarter of
the lifetime of the certificate is left, and at most 30 days before it expires.
The files of --secret-file and --client-secret-file can be replaced as well. Each contains a secret, or
two on separate lines while one replaces the other: the peer connects with the first one, and accepts
both. Within five seconds it closes the connections of a secret that was removed.

The file of -c contains the settings, which "raftlog defaults" explains, and flags override them.
The log has no state machine: clients such as "raftlog tail" follow it.

A peer that is not listed in peers joins their cluster. It votes after "raftlog config --add".

`

func newServe() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "serve [-c FILE] [--peer-id ID]", Short: "Run a peer", Long: serveHelp + exitCodes(cmdline.Permanent, cmdline.Identity),
		Example: "  raftlog serve -c /etc/raftlog.yaml --peer-id a",
		Args:    cmdline.NoArguments(newUsageError, "give the ID of the peer by --peer-id %s"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.peerConfig(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cmdline.IgnoreBrokenPipe()
			defer s.certificates.Monitor(cfg.Logger.With("peer", cfg.ID), s.Files()...)()
			return runPeer(cmd.Context(), cfg)
		},
	}
	addFlagSet(cmd, s.flags)
	return cmd
}

// peerConfig reads the settings, and returns the configuration of the peer.
func (s *settings) peerConfig(out io.Writer) (c raftlog.Config, err error) {
	warning, err := s.load()
	if err != nil {
		return c, err
	}
	if err := s.completePeer(); err != nil {
		return c, err
	}
	logger, err := cmdline.NewLogger(out, s.logFormat, s.logLevel, slog.LevelDebug)
	if err != nil {
		return c, newUsageError("%w", err)
	}
	log := logger.With("peer", s.ID)
	s.Warn = func(flag, warning string) { log.Warn("credentials are not private", "err", flag+": "+warning) }
	if warning != "" {
		s.Warn("--"+cmdline.FlagConfig, warning)
	}
	c = raftlog.Config{
		Cluster: s.Cluster, ID: s.ID, Addr: s.addr, Listen: cmp.Or(s.Listen, s.addr), Dir: s.Dir, Peers: s.Peers,
		AllowedNames: s.AllowedNames, AllowedClientNames: s.AllowedClientNames, Insecure: s.Insecure,
		CompactFile: s.compactFile, ElectionTimeout: s.electionTimeout, Heartbeat: s.heartbeat, Window: s.window,
		JoinTimeout: s.joinTimeout, MaxRequestIDs: s.maxRequestIDs, MaxData: s.maxData, Logger: logger,
	}
	if c.Secrets, c.TLS, err = s.Peer(s.certificates, log); err != nil {
		return c, newUsageError("%w", err)
	}
	return c, nil
}

// completePeer sets the address and the paths of a peer, and returns an error if a required setting is missing.
func (s *settings) completePeer() (err error) {
	if s.addr == "" || s.addrMayBeOfOtherPeer() {
		s.addr = cmp.Or(s.Addr(), s.addr)
	}
	switch {
	case s.ID == "":
		return newUsageError("the ID of the peer is missing: give it by --peer-id, such as --peer-id a, or set peer-id in the file of -c")
	case s.Cluster == "":
		return errClusterMissing
	case len(s.Peers) == 0:
		return newUsageError("the peers of the cluster are missing: set peers in the file of -c, such as peers: [%s]", cmdline.ExamplePeer)
	case s.Dir == "":
		return newUsageError("the directory of peer %s is missing: set dir in the file of -c, or -d, such as -d /var/lib/raftlog", s.ID)
	case s.addr == "":
		return newUsageError("the address of peer %s is missing: list the peer in peers of the file of -c, or set --addr, such as --addr 10.0.0.1:8047", s.ID)
	}
	if s.Dir, err = s.expandPath(s.Dir); err == nil {
		s.compactFile, err = s.expandPath(s.compactFile)
	}
	return err
}

// addrMayBeOfOtherPeer reports whether the address may be that of another peer: the address is from the
// configuration file, which several peers can share, and the ID is not from this file.
func (s *settings) addrMayBeOfOtherPeer() bool {
	return cmdline.IsFromFile(s.flags.Lookup("addr")) && !cmdline.IsFromFile(s.flags.Lookup("peer-id"))
}

// runPeer runs a peer until ctx is done or the peer stops.
func runPeer(ctx context.Context, cfg raftlog.Config) error {
	log := cfg.Logger.With("peer", cfg.ID)
	type result struct {
		node *raftlog.Node
		err  error
	}
	done := make(chan result, 1)
	go func() { // open the node on a separate goroutine, because reading a large log, or joining, may take long
		node, err := raftlog.Open(cfg)
		done <- result{node, err}
	}()
	var node *raftlog.Node
	select {
	case r := <-done:
		if r.err != nil {
			return toUsageError(r.err)
		}
		node = r.node
	case <-ctx.Done():
		log.Info("stopped while starting")
		return nil // do not wait for Open, because the peer has confirmed nothing yet; its goroutine ends with the process
	}
	log.Info("listening", "listen", cfg.Listen, "addr", cfg.Addr, "cluster", cfg.Cluster)
	logRoles(ctx, node, log)
	if ctx.Err() != nil {
		log.Info("stopping")
	}
	if err := node.Close(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// roleInterval is the interval at which logRoles reads the role of the peer.
const roleInterval = 50 * time.Millisecond

// logRoles logs changes of the role until ctx is done or the node stops.
func logRoles(ctx context.Context, node *raftlog.Node, log *slog.Logger) {
	tick := time.NewTicker(roleInterval)
	defer tick.Stop()
	var role string
	var term uint64
	var leader api.Peer
	removed := false
	for {
		if i := node.Info(); i.Role != role || i.Term != term || i.Leader != leader {
			role, term, leader = i.Role, i.Term, i.Leader
			log.Info("role changed", "role", role, "term", term, "leader", leader.ID)
			if role == "removed" && !removed {
				removed = true
				log.Warn("this peer was removed from the cluster: stop this process; a replacement of the peer needs another ID and an empty directory")
			}
		}
		select {
		case <-tick.C:
		case <-node.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
