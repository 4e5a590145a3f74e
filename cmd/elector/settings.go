package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

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
	flags.StringVar(&s.backend, "backend", "", "what the election stands on: "+backendNames())
	flags.StringVar(&s.instanceID, flagInstanceID, "", "name of this instance, which others see (default: host name, process number and a random part)")
	flags.StringVar(&s.election, "election", "/election", "name of the election; on zookeeper the path of its znode, on etcd its key (ELECTOR_KEY)")
	flags.StringVar(&s.config, flagConfig, "", "YAML file whose keys are the flags of run, and command, a list: what comes after --")
	flags.StringVar(&s.logFormat, "log-format", "text", "text or json, on standard error")
	flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&s.caFile, "ca-file", "", "certificates of authorities for servers, and peers, PEM; turns TLS on")
	flags.StringVar(&s.certFile, "cert-file", "", "certificate of this client, or peer, PEM")
	flags.StringVar(&s.keyFile, "key-file", "", "key of --cert-file, PEM")
	s.zookeeper.register(flags)
	s.etcd.register(flags)
	s.changefeed.register(flags)
	s.raftlog.register(flags)
}

// complete checks the settings, and makes up those that have no fixed default.
func (s *settings) complete(cmd *cobra.Command) (err error) {
	if s.instanceID == "" {
		s.instanceID = newInstanceID()
	}
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
