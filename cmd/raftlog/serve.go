package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const aboutServe = `Run a peer until SIGINT or SIGTERM. Then the peer hands over, if it leads, and exits; a second
signal ends it immediately. All updates that it has confirmed are on disk.

The file of -c contains the settings, which "raftlog defaults" explains, and flags override them.
The log has no state machine: clients such as "raftlog tail" follow it.

A peer that is not listed in peers joins their cluster. It votes after "raftlog config --add".

`

type server struct {
	access
	settings
}

func newServe() *cobra.Command {
	var s server
	cmd := &cobra.Command{
		Use: "serve [-c FILE] [--peer-id ID]", Short: "Run a peer", Long: aboutServe + exitHelp,
		Example: "  raftlog serve -c /etc/raftlog.yaml --peer-id a",
		Args:    cmdline.NoArguments(usage, "give the ID of the peer by --peer-id %s"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	s.access.register(flags)
	flags.StringVar(&s.ID, "peer-id", "", "ID of this peer")
	flags.StringVar(&s.Addr, "addr", "", "address at which others reach this peer, host:port (default: its address in peers)")
	flags.StringVarP(&s.Listen, "listen", "b", "", "address to listen on, host:port (default: --addr)")
	flags.StringVarP(&s.Dir, "dir", "d", "", "directory of the data of this peer")
	flags.StringVar(&s.CompactFile, "compact-file", "", "file in which this peer expects snapshots of raftlog compact")
	flags.StringVar(&s.LogLevel, "log-level", "", "debug, info, warn or error")
	return cmd
}

// config returns the configuration of the library.
func (s *server) config(log io.Writer) (raftlog.Config, error) {
	c, err := s.load()
	if err != nil {
		return raftlog.Config{}, err
	}
	id := s.ID
	for _, o := range []struct {
		to   *string
		from string
	}{
		{&c.ID, id},
		{&c.Addr, s.Addr},
		{&c.Listen, s.Listen},
		{&c.Dir, s.Dir},
		{&c.CompactFile, s.CompactFile},
		{&c.LogLevel, s.LogLevel},
	} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	c.place()
	if c.ID == "" {
		return raftlog.Config{}, usage("the ID of the peer is missing: give it by --peer-id, such as --peer-id a, or set peer-id in the file of -c")
	}
	switch {
	case c.Cluster == "":
		return raftlog.Config{}, usage("the name of the cluster is missing: set cluster in the file of -c, or --cluster NAME")
	case len(c.Peers) == 0:
		return raftlog.Config{}, usage("the peers of the cluster are missing: set peers in the file of -c, such as peers: [%s]", examplePeer)
	case c.Dir == "":
		return raftlog.Config{}, usage("the directory of peer %s is missing: set dir in the file of -c, or -d, such as -d /var/lib/raftlog", c.ID)
	}
	for _, p := range c.Peers {
		if p.ID == c.ID && (c.Addr == "" || id != "" && s.Addr == "") {
			c.Addr = p.Addr // the file's own addr is that of another peer
		}
	}
	if c.Addr == "" {
		return raftlog.Config{}, usage("the address of peer %s is missing: list the peer in peers of the file of -c, or set --addr, such as --addr 10.0.0.1:8047", c.ID)
	}
	if err := c.check(); err != nil {
		return raftlog.Config{}, err
	}
	secret, certificates, err := c.proof()
	if err != nil {
		return raftlog.Config{}, err
	}
	logger, err := c.logger(log)
	if err != nil {
		return raftlog.Config{}, err
	}
	return raftlog.Config{
		Cluster: c.Cluster, ID: c.ID, Addr: c.Addr, Listen: c.Listen, Dir: c.Dir, Peers: c.peers(),
		Secret: secret, TLS: certificates, Insecure: c.Insecure, CompactFile: c.CompactFile,
		ElectionTimeout: c.ElectionTimeout, Heartbeat: c.Heartbeat, Window: c.Window, JoinTimeout: c.JoinTimeout,
		MaxRequestIDs: c.MaxRequestIDs, MaxData: c.MaxData, Logger: logger,
	}, nil
}

func (s settings) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, usage("log-level %q: it is not one of debug, info, warn, error", s.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("log-format %q: it is not one of text, json", s.LogFormat)
}

// serve runs a peer until ctx ends.
func serve(ctx context.Context, cfg raftlog.Config) error {
	log := cfg.Logger.With("peer", cfg.ID)
	type opened struct {
		node *raftlog.Node
		err  error
	}
	done := make(chan opened, 1)
	go func() { // reading a large log, or joining, takes a while
		node, err := raftlog.Open(cfg)
		done <- opened{node, err}
	}()
	var node *raftlog.Node
	select {
	case o := <-done:
		if o.err != nil {
			return failedOpen(o.err)
		}
		node = o.node
	case <-ctx.Done():
		log.Info("stopped while starting")
		return nil // the goroutine ends with the process, and nothing was confirmed
	}
	listen := cfg.Listen
	if listen == "" {
		listen = cfg.Addr
	}
	log.Info("listening", "listen", listen, "addr", cfg.Addr, "cluster", cfg.Cluster)
	watch(ctx, node, log)
	if ctx.Err() != nil {
		log.Info("stopping")
	}
	if err := node.Close(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func failedOpen(err error) error {
	if exitCode(err) == exitFailed && isInvalid(err) {
		return usage("%w", err)
	}
	return err
}

// roleInterval is the interval at which the role of the peer is read.
const roleInterval = 50 * time.Millisecond

// watch logs changes of role until ctx or the node ends.
func watch(ctx context.Context, node *raftlog.Node, log *slog.Logger) {
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
