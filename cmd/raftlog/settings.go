package main

import (
	"cmp"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// settings contains the settings of all commands. A command has flags only for the settings that it uses.
// Environment variables and the configuration file can contain all settings.
type settings struct {
	cmdline.PeerSettings
	certificates               cmdline.Certificates
	addr, compactFile          string
	electionTimeout, heartbeat time.Duration
	window, joinTimeout        time.Duration
	maxRequestIDs, maxData     int
	logFormat, logLevel        string

	flags        *pflag.FlagSet // the flags of all settings
	clusterFlags *pflag.FlagSet // the flags that all commands for a cluster have
}

const (
	// groupAccess is the title of the flags for access to the cluster in help texts.
	groupAccess = "Access to the cluster"
	// keyClientSecret is the name of the setting that no command accepts as a flag, because other users can
	// see flags.
	keyClientSecret = "client-secret"
	// maxData is the greatest permitted value of the setting max-data, in bytes.
	maxData = 16 << 20
)

// configuration describes the settings of the command raftlog.
var configuration = cmdline.Settings{Prefix: "RAFTLOG_", Earlier: map[string]string{"listen": "peer-listen"}}

func newSettings() *settings {
	s := &settings{PeerSettings: cmdline.PeerSettings{Program: "raftlog", PeerCommand: "serve"}}
	s.clusterFlags = pflag.NewFlagSet("", pflag.ContinueOnError)
	s.clusterFlags.SortFlags = false
	s.clusterFlags.StringP(cmdline.FlagConfig, "c", "", "configuration file, YAML (see raftlog defaults)")
	cmdline.RegisterGroup(s.clusterFlags, groupAccess, func(flags *pflag.FlagSet) {
		s.RegisterAccess(flags)
		s.certificates.Register(flags)
	})
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetNormalizeFunc(configuration.Normalize)
	s.RegisterPeer(flags)
	flags.StringVar(&s.addr, "addr", "", "address at which others reach the peer, host:port (default: its address in peers)")
	flags.AddFlagSet(s.clusterFlags)
	for name, shorthand := range map[string]string{"secret": "k", "dir": "d", "peer-listen": "b"} {
		flags.Lookup(name).Shorthand = shorthand
	}
	flags.StringVar(&s.compactFile, "compact-file", "", "file in which the peer expects snapshots of raftlog compact; {id} stands for its ID. The directory must be on the same file system as dir, may be in dir, and no other user may write it. The peer installs only a file that belongs to its user or to root, that no other user can write, and that is not a link")
	flags.DurationVar(&s.electionTimeout, "election-timeout", raftlog.DefaultElectionTimeout, "time after which voters that receive nothing from the leader elect another one, and the maximum of a lease; at least 100ms, and the same for all peers")
	flags.DurationVar(&s.heartbeat, "heartbeat", 0, "interval of the leader's heartbeats; 0s is a fifth of election-timeout")
	flags.DurationVar(&s.window, "window", raftlog.DefaultWindow, "time for which request IDs are remembered; older unknown IDs are rejected. The same for all peers: a leader with a longer window extends it, and a shorter one is ignored with a warning")
	flags.DurationVar(&s.joinTimeout, "join-timeout", raftlog.DefaultJoinTimeout, "time in which a peer that joins must find another peer that sends it a snapshot")
	flags.IntVar(&s.maxRequestIDs, "max-request-ids", raftlog.DefaultMaxRequestIDs, "maximum number of request IDs within the window, 20 bytes each; updates are rejected while there are more")
	flags.IntVar(&s.maxData, "max-data", raftlog.DefaultMaxData, "maximum size of an update in bytes, up to 16777216")
	cmdline.RegisterLog(flags, &s.logFormat, &s.logLevel)
	s.flags = flags
	return s
}

// addFlags adds the flags with the given names to a command.
func (s *settings) addFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().AddFlag(s.flags.Lookup(name))
	}
}

// addFlagSet adds flags to a command, except the flag of the secret of clients, because other users can
// see flags.
func addFlagSet(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != keyClientSecret {
			cmd.Flags().AddFlag(f)
		}
	})
}

// load reads the settings that the flags do not contain, and rejects values that no command accepts. warning is
// not empty if the configuration file contains a secret and all users can read the file.
func (s *settings) load() (warning string, err error) {
	warning, err = configuration.Read(s.flags, s.flags, func(flag, _ string) bool {
		return flag == "secret" || flag == keyClientSecret
	})
	if err != nil {
		return "", newUsageError("%w", err)
	}
	return warning, s.validate()
}

// validate rejects values that no command accepts. Errors contain the names of keys and flags.
func (s *settings) validate() error {
	between := func(key string, d, least, most time.Duration, example string) error {
		if d < least || d > most {
			return newUsageError("%s %v: must be from %v to %v, such as %s", key, d, least, most, example)
		}
		return nil
	}
	if s.addr != "" {
		if err := checkAddress("addr", s.addr, false); err != nil {
			return err
		}
	}
	if s.Listen != "" {
		if err := checkAddress("peer-listen", s.Listen, true); err != nil {
			return err
		}
	}
	switch {
	case s.maxRequestIDs < 1:
		return newUsageError("max-request-ids %d: must be positive, such as %d", s.maxRequestIDs, raftlog.DefaultMaxRequestIDs)
	case s.maxData < 1 || s.maxData > maxData:
		return newUsageError("max-data %d: must be from 1 to %d, such as %d", s.maxData, maxData, raftlog.DefaultMaxData)
	}
	return cmp.Or(
		between("election-timeout", s.electionTimeout, 100*time.Millisecond, time.Hour, "1s"),
		between("heartbeat", cmp.Or(s.heartbeat, s.electionTimeout/5), s.electionTimeout/20, s.electionTimeout/2, "0s, which is a fifth of election-timeout"),
		between("window", s.window, time.Minute, 10*365*24*time.Hour, "7h"),
		between("join-timeout", s.joinTimeout, time.Millisecond, 24*time.Hour, "1m"),
	)
}

// expandPath replaces {id} in a path by the ID of the peer.
func (s *settings) expandPath(path string) (string, error) {
	path, err := s.ExpandPath(path)
	if err != nil {
		err = newUsageError("%w", err)
	}
	return path, err
}

// checkAddress rejects an address that does not have the form host:port. An address to listen on
// may omit the host, or have port 0, which selects a free port.
func checkAddress(name, addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || !listen && (n == 0 || host == "") {
		return newUsageError("%s %q: must have the form host:port, such as 10.0.0.1:8047", name, addr)
	}
	return nil
}

// parsePeers parses a list of peers.
func parsePeers(texts []string) (peers []api.Peer, err error) {
	for _, text := range texts {
		p, err := cmdline.ParsePeer(text)
		if err != nil {
			return nil, newUsageError("%w", err)
		}
		peers = append(peers, p)
	}
	return peers, nil
}
