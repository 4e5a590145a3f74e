package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

const aboutServe = `Run a peer, until SIGINT or SIGTERM: then it hands over, if it leads, and ends. What it
had confirmed is on disk. A second signal ends it at once.

Settings come from the file of -c ("raftlog defaults" explains them all), and flags override
them. The log is opaque: it is for whoever follows it, such as "raftlog tail".

A peer that is not among peers joins their cluster; it votes after "raftlog config --add".

`

type server struct {
	access
	settings
}

func newServe() *cobra.Command {
	var s server
	cmd := &cobra.Command{
		Use: "serve [-c FILE] [ID]", Short: "Run a peer", Long: aboutServe + exitHelp, Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.config(args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	s.access.register(flags)
	flags.StringVar(&s.ID, "id", "", "ID of the peer, like the argument")
	flags.StringVar(&s.Addr, "addr", "", "where others reach this peer, host:port")
	flags.StringVarP(&s.Listen, "listen", "b", "", "where to listen, host:port; default: addr")
	flags.StringVarP(&s.Dir, "dir", "d", "", "folder of the peer's data")
	flags.StringVar(&s.CompactFile, "compact-file", "", "file to watch for snapshots of raftlog compact")
	flags.StringVar(&s.LogLevel, "log-level", "", "debug, info, warn or error")
	return cmd
}

// config is the library's configuration, with everything checked that the library does not.
func (s *server) config(args []string, log io.Writer) (raftlog.Config, error) {
	c, err := s.load()
	if err != nil {
		return raftlog.Config{}, err
	}
	id := s.ID
	if len(args) > 0 {
		if id != "" && id != args[0] {
			return raftlog.Config{}, usage("--id %s and the argument %s name different peers: give one of them", id, args[0])
		}
		id = args[0]
	}
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
		return raftlog.Config{}, usage("which peer? Give its ID: raftlog serve -c FILE ID, or set id in the file")
	}
	switch {
	case c.Cluster == "":
		return raftlog.Config{}, usage("which cluster? Set cluster in the file of -c, or --cluster")
	case len(c.Peers) == 0:
		return raftlog.Config{}, usage("which peers has the cluster? Set peers in the file of -c (see raftlog defaults)")
	case c.Dir == "":
		return raftlog.Config{}, usage("where are the data of peer %s? Set dir in the file of -c, or -d", c.ID)
	}
	for _, p := range c.Peers {
		if p.ID == c.ID && (c.Addr == "" || id != "" && s.Addr == "") {
			c.Addr = p.Addr // the file's own addr is that of another peer
		}
	}
	if c.Addr == "" {
		return raftlog.Config{}, usage("where do others reach peer %s? Set addr, or list it in peers", c.ID)
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
		return nil, usage("log-level %q: not one of debug, info, warn, error", s.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("log-format %q: not one of text, json", s.LogFormat)
}

// serve runs a peer until ctx ends.
func serve(ctx context.Context, cfg raftlog.Config) error {
	log := cfg.Logger.With("peer", cfg.ID)
	type opened struct {
		node *raftlog.Node
		err  error
	}
	done := make(chan opened, 1)
	go func() { // to read a large log, or to join, takes a while
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
		log.Info("ended before the peer has begun")
		return nil // with the process; nothing was promised to anybody
	}
	listen := cfg.Listen
	if listen == "" {
		listen = cfg.Addr
	}
	log.Info("listening", "listen", listen, "addr", cfg.Addr, "cluster", cfg.Cluster)
	watch(ctx, node, log)
	if ctx.Err() != nil {
		log.Info("closing")
	}
	if err := node.Close(); err != nil {
		return err
	}
	log.Info("closed")
	return nil
}

func failedOpen(err error) error {
	if exitCode(err) == exitFailed && isInvalid(err) {
		return usage("%w", err)
	}
	return err
}

// look is how often the peer's role is looked at.
const look = 50 * time.Millisecond

// watch logs changes of role until ctx or the node ends.
func watch(ctx context.Context, node *raftlog.Node, log *slog.Logger) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	var role string
	var term uint64
	var leader raftlog.Peer
	removed := false
	for {
		if i := node.Info(); i.Role != role || i.Term != term || i.Leader != leader {
			role, term, leader = i.Role, i.Term, i.Leader
			log.Info("role", "role", role, "term", term, "leader", leader.ID)
			if role == "removed" && !removed {
				removed = true
				log.Warn("this peer was removed from the cluster, and takes no part any more: end it; whoever takes its place needs another ID, and a folder of its own")
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
