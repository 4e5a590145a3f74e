package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
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

// serveCommand is the command serve.
type serveCommand struct {
	clusterFlags
	settings
	// The files are set by peerConfig.
	certificates credentialfile.Certificates
	secretFiles  []credentialfile.SecretFile
}

func newServe() *cobra.Command {
	var s serveCommand
	cmd := &cobra.Command{
		Use: "serve [-c FILE] [--peer-id ID]", Short: "Run a peer", Long: serveHelp + exitCodes(exitDamaged, exitIdentity),
		Example: "  raftlog serve -c /etc/raftlog.yaml --peer-id a",
		Args:    cmdline.NoArguments(newUsageError, "give the ID of the peer by --peer-id %s"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.peerConfig(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cmdline.IgnoreBrokenPipe()
			defer s.certificates.Monitor(cfg.Logger.With("peer", cfg.ID), s.secretFiles...)()
			return runPeer(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	s.clusterFlags.register(cmd)
	flags.StringVar(&s.ID, "peer-id", "", "ID of this peer")
	flags.StringVar(&s.Addr, "addr", "", "address at which others reach this peer, host:port (default: its address in peers)")
	flags.StringVarP(&s.Listen, "listen", "b", "", "address to listen on, host:port (default: --addr)")
	flags.StringVarP(&s.Dir, "dir", "d", "", "directory of the data of this peer")
	flags.StringVar(&s.CompactFile, "compact-file", "", "file in which this peer expects snapshots of raftlog compact")
	flags.StringVar(&s.LogLevel, "log-level", "", "debug, info, warn or error")
	return cmd
}

// peerSettings returns the settings of the file, which the flags override, after checking that they are
// complete and valid.
func (s *serveCommand) peerSettings() (settings, error) {
	c, err := s.loadSettings()
	if err != nil {
		return c, err
	}
	for _, o := range []struct {
		to   *string
		flag string
	}{
		{&c.ID, s.ID},
		{&c.Addr, s.Addr},
		{&c.Listen, s.Listen},
		{&c.Dir, s.Dir},
		{&c.CompactFile, s.CompactFile},
		{&c.LogLevel, s.LogLevel},
	} {
		*o.to = cmp.Or(o.flag, *o.to)
	}
	c.expandPaths()
	addrMayBeOfAnother := s.ID != "" && s.Addr == "" // the file may be that of another peer
	if c.Addr == "" || addrMayBeOfAnother {
		c.Addr = cmp.Or(c.addrInPeers(c.ID), c.Addr)
	}
	switch {
	case c.ID == "":
		return c, newUsageError("the ID of the peer is missing: give it by --peer-id, such as --peer-id a, or set peer-id in the file of -c")
	case c.Cluster == "":
		return c, newUsageError("the name of the cluster is missing: set cluster in the file of -c, or --cluster NAME")
	case len(c.Peers) == 0:
		return c, newUsageError("the peers of the cluster are missing: set peers in the file of -c, such as peers: [%s]", examplePeer)
	case c.Dir == "":
		return c, newUsageError("the directory of peer %s is missing: set dir in the file of -c, or -d, such as -d /var/lib/raftlog", c.ID)
	case c.Addr == "":
		return c, newUsageError("the address of peer %s is missing: list the peer in peers of the file of -c, or set --addr, such as --addr 10.0.0.1:8047", c.ID)
	}
	return c, c.validate()
}

// addrInPeers returns the address of a peer in peers, or "" if it is not listed.
func (s *settings) addrInPeers(id string) string {
	for _, p := range s.Peers {
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}

// peerConfig returns the configuration of the peer.
func (s *serveCommand) peerConfig(log io.Writer) (raftlog.Config, error) {
	c, err := s.peerSettings()
	if err != nil {
		return raftlog.Config{}, err
	}
	s.certificates, s.secretFiles = c.tlsFiles(), c.secretFiles()
	logger, err := cmdline.NewLogger(log, c.LogFormat, c.LogLevel, slog.LevelDebug)
	if err != nil {
		return raftlog.Config{}, newUsageError("%w", err)
	}
	own, err := c.peerCredentials(logger.With("peer", c.ID))
	if err != nil {
		return raftlog.Config{}, err
	}
	var secrets func() api.Secrets
	if own.peers != nil {
		secrets = func() (now api.Secrets) {
			now.Peers, now.Clients = own.roles.Current()
			return now
		}
	}
	for _, warning := range c.warnings {
		logger.Warn("credentials are not private", "peer", c.ID, "err", warning)
	}
	return raftlog.Config{
		Cluster: c.Cluster, ID: c.ID, Addr: c.Addr, Listen: c.Listen, Dir: c.Dir, Peers: c.peers(),
		Secrets: secrets, TLS: own.certificates, AllowedNames: c.AllowedNames, AllowedClientNames: c.AllowedClientNames, Insecure: c.Insecure, CompactFile: c.CompactFile,
		ElectionTimeout: c.ElectionTimeout, Heartbeat: c.Heartbeat, Window: c.Window, JoinTimeout: c.JoinTimeout,
		MaxRequestIDs: c.MaxRequestIDs, MaxData: c.MaxData, Logger: logger,
	}, nil
}

// runPeer runs a peer until ctx is done or the peer stops.
func runPeer(ctx context.Context, cfg raftlog.Config) error {
	log := cfg.Logger.With("peer", cfg.ID)
	type result struct {
		node *raftlog.Node
		err  error
	}
	done := make(chan result, 1)
	go func() { // reading a large log, or joining, may take long
		node, err := raftlog.Open(cfg)
		done <- result{node, err}
	}()
	var node *raftlog.Node
	select {
	case r := <-done:
		if r.err != nil {
			return toOpenError(r.err)
		}
		node = r.node
	case <-ctx.Done():
		log.Info("stopped while starting")
		return nil // the goroutine ends with the process, which has confirmed nothing
	}
	listen := cfg.Listen
	if listen == "" {
		listen = cfg.Addr
	}
	log.Info("listening", "listen", listen, "addr", cfg.Addr, "cluster", cfg.Cluster)
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

// toOpenError converts an error of Open.
func toOpenError(err error) error {
	if exitCode(err) == exitFailed && isInvalid(err) {
		return newUsageError("%w", err)
	}
	return err
}

// roleInterval is the interval at which the role of the peer is read.
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
				log.Warn("this peer was removed from the cluster: stop it; its replacement needs another ID and an empty directory")
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
