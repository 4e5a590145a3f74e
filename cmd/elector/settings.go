package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const (
	flagInstanceID = "instance-id"
	// maxInstanceID bounds --instance-id, in bytes: each list of candidates has all names.
	maxInstanceID = 1024
)

// credentials are the variables of flags that can have some: they are neither shown nor
// passed on to what elector runs.
var credentials = []string{
	"ELECTOR_ZOOKEEPER_AUTH", "ELECTOR_ETCD_PASSWORD", "ELECTOR_STORE", "ELECTOR_STORE_PASSWORD",
	"ELECTOR_SECRET",
}

// settings are the flags that every command has.
type settings struct {
	backend    string
	instanceID string
	election   string
	value      string // that this instance advertises, "" for none

	config      string   // a file
	fileProgram []string // of that

	logFormat, logLevel string
	quiet               bool

	caFile, certFile, keyFile string
	zookeeper                 zookeeperSettings
	etcd                      etcdSettings
	changefeed                changefeedSettings
	raftlog                   raftlogSettings

	log *slog.Logger
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(aliases)
	cmdline.RegisterGroup(flags, groupElection, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.backend, "backend", "", "system that stores the election: "+backendNames()+" (default: the one whose servers are given)")
		flags.StringVar(&s.instanceID, flagInstanceID, "", "name of this instance, visible to others (default: host name, process ID and a random part)")
		flags.StringVar(&s.election, "election", "/election", "name of the election; on zookeeper the path of its znode, on etcd its key (ELECTOR_KEY)")
		flags.StringVar(&s.config, flagConfig, "", "YAML file; its keys are the flags of run, and command: a list of the program and its arguments")
		flags.DurationVar(&s.zookeeper.session, "session-timeout", 4*time.Second, "session timeout to request; zookeeper servers may grant a different one, which is then used. On raftlog and changefeed the time after which an unresponsive leader is replaced")
	})
	for name, k := range kinds {
		if k.flags != nil {
			cmdline.RegisterGroup(flags, groupBackend+name, func(flags *pflag.FlagSet) { k.flags(s, flags) })
		}
	}
	cmdline.RegisterGroup(flags, groupTLS, func(flags *pflag.FlagSet) {
		flags.BoolVar(&s.zookeeper.tls, "tls", false, "connect with TLS; without --ca-file the authorities of the system are trusted")
		flags.StringVar(&s.caFile, "ca-file", "", "certificates of the authorities of servers and peers, PEM; enables TLS")
		flags.StringVar(&s.certFile, "cert-file", "", "certificate of this client or peer, PEM")
		flags.StringVar(&s.keyFile, "key-file", "", "key of --cert-file, PEM")
	})
	cmdline.RegisterGroup(flags, groupLogging, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.logFormat, "log-format", "text", "format of log messages, which go to standard error: text or json")
		flags.StringVar(&s.logLevel, "log-level", "info", "least severe messages to log: debug, info, warn or error")
		flags.BoolVar(&s.quiet, "quiet", false, "log warnings and errors only, even if --log-level is debug or info")
	})
}

// complete checks the settings, and makes up those that have no fixed default.
func (s *settings) complete(cmd *cobra.Command) (err error) {
	if s.instanceID == "" {
		s.instanceID = newInstanceID()
	}
	if err := checkText(flagInstanceID, s.instanceID, maxInstanceID); err != nil {
		return err
	}
	if d, err := cmd.Flags().GetDuration("timeout"); err == nil && (d < 0 || d == 0 && cmd.Name() != "run" && cmd.Name() != "config") {
		return usage("--timeout %v: it must be more than zero", d)
	}
	s.inferBackend()
	s.log, err = newLog(cmd.ErrOrStderr(), s.logFormat, s.logLevel, s.quiet)
	return err
}

// newInstanceID is never that of another instance, and never empty.
func newInstanceID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

func newLog(w io.Writer, format, level string, quiet bool) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %s: not one of debug, info, warn, error", level)
	}
	if quiet {
		l = max(l, slog.LevelWarn)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("--log-format %s: not one of text, json", format)
}
