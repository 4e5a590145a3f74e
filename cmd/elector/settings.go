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

	"github.com/go-leaderelection/leaderelection"
)

const flagInstanceID = "instance-id"

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

	config      string   // a file
	fileProgram []string // of that

	logFormat, logLevel string

	caFile, certFile, keyFile string
	zookeeper                 zookeeperSettings
	etcd                      etcdSettings
	changefeed                changefeedSettings
	raftlog                   raftlogSettings

	// candidateOptions are for candidates on zookeeper.
	candidateOptions []leaderelection.Option

	log *slog.Logger
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(aliases)
	registerGroup(flags, groupElection, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.backend, "backend", "", "the system that keeps the election: "+backendNames()+" (default: the one whose servers are given)")
		flags.StringVar(&s.instanceID, flagInstanceID, "", "name of this instance, which others see (default: host name, process number and a random part)")
		flags.StringVar(&s.election, "election", "/election", "name of the election; on zookeeper the path of its znode, on etcd its key (ELECTOR_KEY)")
		flags.StringVar(&s.config, flagConfig, "", "YAML file whose keys are the flags of run, and command, a list: what comes after --")
		flags.DurationVar(&s.zookeeper.session, "session-timeout", 4*time.Second, "session timeout to ask for; on raftlog and changefeed the time after which a silent leader is replaced. The servers of zookeeper may grant another one, which is used then")
	})
	registerGroup(flags, groupZooKeeper, s.zookeeper.register)
	registerGroup(flags, groupEtcd, s.etcd.register)
	registerGroup(flags, groupChangefeed, s.changefeed.register)
	registerGroup(flags, groupRaftlog, s.raftlog.register)
	registerGroup(flags, groupTLS, func(flags *pflag.FlagSet) {
		flags.BoolVar(&s.zookeeper.tls, "tls", false, "connect by TLS; with the system's authorities unless --ca-file is given")
		flags.StringVar(&s.caFile, "ca-file", "", "certificates of authorities for servers, and peers, PEM; turns TLS on")
		flags.StringVar(&s.certFile, "cert-file", "", "certificate of this client, or peer, PEM")
		flags.StringVar(&s.keyFile, "key-file", "", "key of --cert-file, PEM")
	})
	registerGroup(flags, groupLogging, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.logFormat, "log-format", "text", "text or json, on standard error")
		flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	})
}

// complete checks the settings, and makes up those that have no fixed default.
func (s *settings) complete(cmd *cobra.Command) (err error) {
	if s.instanceID == "" {
		s.instanceID = newInstanceID()
	}
	s.inferBackend()
	s.log, err = newLog(cmd.ErrOrStderr(), s.logFormat, s.logLevel)
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

func newLog(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %s: not one of debug, info, warn, error", level)
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
