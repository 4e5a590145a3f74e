package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// clientFlags contains the flags of commands that send requests to peers.
type clientFlags struct {
	*settings
	timeout  durationFlag
	seedHint string // the end of the error message about missing peers; it describes the argument that names a peer
}

func (c *clientFlags) register(cmd *cobra.Command, timeout time.Duration, usage string) {
	c.settings = newSettings()
	addFlagSet(cmd, c.clusterFlags)
	c.Warn = func(flag, warning string) {
		fmt.Fprintln(cmd.ErrOrStderr(), "raftlog: warning:", cmdline.Printable(flag+": "+warning))
	}
	flags := cmd.Flags()
	c.timeout, c.seedHint = durationFlag(timeout), ", or give the address of one, such as 10.0.0.1:8047"
	short := "t"
	if flags.ShorthandLookup(short) != nil {
		short = ""
	}
	flags.VarP(&c.timeout, "timeout", short, usage+", such as 2s, or a number of milliseconds")
}

// load reads the settings, and prints a warning if the configuration file is not private.
func (c *clientFlags) load() error {
	warning, err := c.settings.load()
	if warning != "" {
		c.Warn("--"+cmdline.FlagConfig, warning)
	}
	return err
}

// newClient reads the settings, and returns a client of the peers in seeds, or of the peers in the settings if
// seeds is empty.
func (c *clientFlags) newClient(seeds []string) (*client.Client, error) {
	if err := c.load(); err != nil {
		return nil, err
	}
	return c.connect(seeds)
}

// connect returns a client of the peers in seeds, or of the peers in the settings if seeds is empty. It does
// not read the settings.
func (c *clientFlags) connect(seeds []string) (*client.Client, error) {
	secret, certificates, err := c.Client(c.certificates)
	if err != nil {
		return nil, newUsageError("%w", err)
	}
	peers := []api.Peer(c.Peers)
	if len(seeds) > 0 {
		if peers, err = parsePeers(seeds); err != nil {
			return nil, err
		}
	}
	for i, p := range peers[:len(seeds)] {
		if p.ID == p.Addr {
			peers[i].ID = "" // ParsePeer uses the address as the ID of a peer without an ID, but the real ID is not known
		}
	}
	switch {
	case c.Cluster == "":
		return nil, errClusterMissing
	case len(peers) == 0:
		return nil, newUsageError("the peers are missing: set peers in the file of -c%s", c.seedHint)
	}
	cl, err := client.New(client.Config{
		Cluster: c.Cluster, Peers: peers, GetSecret: secret, TLS: certificates, AllowedNames: c.AllowedNames, Insecure: c.Insecure,
		CallTimeout: min(time.Duration(c.timeout), callTimeout), Refresh: -1,
	})
	return cl, toUsageError(err)
}

var errClusterMissing = newUsageError("the name of the cluster is missing: set cluster in the file of -c, or --cluster NAME")

// callTimeout limits the time in which a peer must answer a request that it can answer immediately.
const callTimeout = time.Second

// withTimeout returns a context that is done after the duration of --timeout, with a cause that names the flag.
func (c *clientFlags) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(c.timeout),
		fmt.Errorf("no answer within %v (--timeout): are the peers running, and reachable from here?", time.Duration(c.timeout)))
}

// durationFlag is a duration that can be given as a number of milliseconds.
type durationFlag time.Duration

func (l *durationFlag) String() string { return time.Duration(*l).String() }
func (l *durationFlag) Type() string   { return "ms" }

func (l *durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if ms, e := strconv.ParseUint(text, 10, 31); e == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err == nil && d <= 0 {
		err = errors.New("the duration must be positive, such as 2s")
	}
	*l = durationFlag(d)
	return err
}
