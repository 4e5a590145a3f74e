package main

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
	"github.com/go-leaderelection/leaderelection/cmd/internal/peer"
)

// settings contains the settings of all commands. A command has the flags of those that it uses, and
// variables and the configuration file can contain all of them.
type settings struct {
	cluster, id, addr, listen, dir string
	peers                          peerList
	access                         peer.Access
	certificates                   credentialfile.Certificates
	compactFile                    string
	electionTimeout, heartbeat     time.Duration
	window, joinTimeout            time.Duration
	maxRequestIDs, maxData         int
	logFormat, logLevel            string

	flags        *pflag.FlagSet // all settings
	clusterFlags *pflag.FlagSet // those that all commands for a cluster have
}

const (
	// groupAccess is the group of the flags of access in help texts.
	groupAccess = "Access to the cluster"
	// keyClientSecret is the setting that is not a flag of a command.
	keyClientSecret = "client-secret"
	// maxData is the maximum of max-data.
	maxData = 16 << 20
)

func newSettings() *settings {
	s := &settings{access: peer.Access{Program: "raftlog", PeerCommand: "serve"}}
	s.clusterFlags = pflag.NewFlagSet("", pflag.ContinueOnError)
	s.clusterFlags.SortFlags = false
	s.clusterFlags.StringP(cmdline.FlagConfig, "c", "", "configuration file, YAML (see raftlog defaults)")
	cmdline.RegisterGroup(s.clusterFlags, groupAccess, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.cluster, "cluster", "", "name of the cluster, the same for all peers and clients")
		s.certificates.Register(flags)
		s.access.Register(flags)
		flags.Lookup("secret").Shorthand = "k"
	})
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVar(&s.id, "peer-id", "", "ID of the peer, which replaces {id} in paths; an ID must not be used again: a peer that has lost its data returns with a new one")
	flags.StringVar(&s.addr, "addr", "", "address at which others reach the peer, host:port (default: its address in peers)")
	flags.StringVarP(&s.listen, "listen", "b", "", "address on which the peer listens, host:port (default: addr)")
	flags.StringVarP(&s.dir, "dir", "d", "", "directory of the data of the peer; {id} stands for its ID")
	flags.Var(&s.peers, "peers", "voters that start the cluster, the same for all of them: tcp://host:port/id,... or, in the file, mappings of id and addr. If the log exists, these are only the peers to contact. A peer that is not listed joins: start it, and then make it a voter by raftlog config --add")
	flags.AddFlagSet(s.clusterFlags)
	flags.StringVar(&s.compactFile, "compact-file", "", "file in which the peer expects snapshots of raftlog compact; {id} stands for its ID. The directory must be on the same file system as dir, may be in dir, and no other user may write it. The peer installs only a file that belongs to its user or to root, that no other user can write, and that is not a link")
	flags.DurationVar(&s.electionTimeout, "election-timeout", raftlog.DefaultElectionTimeout, "time after which voters that receive nothing from the leader elect another one, and the maximum of a lease; at least 100ms, and the same for all peers")
	flags.DurationVar(&s.heartbeat, "heartbeat", 0, "interval of the leader's heartbeats; 0s is a fifth of election-timeout")
	flags.DurationVar(&s.window, "window", raftlog.DefaultWindow, "time for which request IDs are remembered; older unknown IDs are rejected. The same for all peers: a leader with a longer window extends it, and a shorter one is ignored with a warning")
	flags.DurationVar(&s.joinTimeout, "join-timeout", raftlog.DefaultJoinTimeout, "time in which a peer that joins must find another peer that sends it a snapshot")
	flags.IntVar(&s.maxRequestIDs, "max-request-ids", raftlog.DefaultMaxRequestIDs, "maximum number of request IDs within the window, 20 bytes each; updates are rejected while there are more")
	flags.IntVar(&s.maxData, "max-data", raftlog.DefaultMaxData, "maximum size of an update in bytes, up to 16777216")
	flags.StringVar(&s.logFormat, "log-format", "text", "format of log messages, which go to standard error: text or json")
	flags.StringVar(&s.logLevel, "log-level", "info", "least severe messages to log: debug, info, warn or error")
	s.flags = flags
	return s
}

// addFlags adds flags to a command.
func (s *settings) addFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().AddFlag(s.flags.Lookup(name))
	}
}

// addFlagSet adds flags to a command, except that of the secret of clients: other users can see flags.
func addFlagSet(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != keyClientSecret {
			cmd.Flags().AddFlag(f)
		}
	})
}

// load reads the settings that the flags do not contain, and rejects values that no command accepts. warning
// is not empty if all users can read the configuration file, which contains a secret.
func (s *settings) load() (warning string, err error) {
	warning, err = cmdline.Settings{Prefix: "RAFTLOG_"}.Read(s.flags, s.flags, func(flag, _ string) bool {
		return flag == "secret" || flag == keyClientSecret
	})
	if err != nil {
		return "", newUsageError("%w", err)
	}
	return warning, s.validate()
}

// peerList is the value of peers.
type peerList []api.Peer

func (l *peerList) String() string { return strings.Join(l.GetSlice(), ",") }
func (l *peerList) Type() string   { return "peers" }

// Set adds the peers of a list that is separated by commas.
func (l *peerList) Set(text string) error { return l.add(strings.Split(text, ",")...) }

// Append implements [pflag.SliceValue].
func (l *peerList) Append(text string) error { return l.add(text) }

// Replace implements [pflag.SliceValue].
func (l *peerList) Replace(texts []string) error {
	*l = nil
	return l.add(texts...)
}

// GetSlice implements [pflag.SliceValue].
func (l *peerList) GetSlice() (all []string) {
	for _, p := range *l {
		all = append(all, peerURL(p))
	}
	return all
}

// FromMapping implements [cmdline.ListOfMappings].
func (l *peerList) FromMapping(values map[string]string) (string, error) {
	if len(values) != 2 || values["id"] == "" || values["addr"] == "" {
		return "", errors.New("a peer has the keys id and addr, and no others")
	}
	return values["addr"] + "/" + values["id"], nil
}

func (l *peerList) add(texts ...string) error {
	peers, err := parsePeers(texts)
	*l = append(*l, peers...)
	return err
}

// expandPath replaces {id} in a path by the ID of the peer.
func (s *settings) expandPath(path string) (string, error) {
	if s.id == "" && strings.Contains(path, "{id}") {
		return "", newUsageError("%q contains {id}, and the ID of the peer is missing: set it by --peer-id, such as --peer-id a", path)
	}
	return strings.ReplaceAll(path, "{id}", s.id), nil
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
	if s.listen != "" {
		if err := checkAddress("listen", s.listen, true); err != nil {
			return err
		}
	}
	for i, p := range s.peers {
		for _, q := range s.peers[:i] {
			if p.ID == q.ID || p.Addr == q.Addr {
				return newUsageError("peers: %s and %s have the same ID or address; IDs and addresses must be unique, such as %s", peerURL(q), peerURL(p), examplePeer)
			}
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
