package main

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/transport"
)

const (
	flagInstanceID = "instance-id"
	flagElection   = "election"
	// keyCommand is the key of the configuration file for the program and its arguments.
	keyCommand = "command"
	// maxInstanceID is the maximum length of --instance-id in bytes, because each list of candidates
	// contains all names.
	maxInstanceID = 1024
)

// credentials are the environment variables for flags that can contain credentials. elector neither prints them nor
// passes them to the processes that it runs.
var credentials = []string{
	"ELECTOR_ZOOKEEPER_AUTH", "ELECTOR_ETCD_PASSWORD", "ELECTOR_STORE", "ELECTOR_STORE_PASSWORD",
	"ELECTOR_SECRET", "ELECTOR_CLIENT_SECRET",
}

// settings contains the flags that all commands have.
type settings struct {
	backend        string
	instanceID     string
	election       string
	isSecond       bool   // whether these settings are those of the backend of --also, set by flags
	alsoFile       string // the file of --also that contains these settings, if there is one
	value          string // the value of --value that this instance advertises; only the command run has the flag
	sessionTimeout time.Duration

	keys          *pflag.FlagSet // the keys that the configuration file may contain: the flags of run, and "command"
	configWarning string         // the warning that all users can read the credentials in the configuration file, if they can
	fileProgram   []string       // the program in the configuration file

	logFormat, logLevel string
	quiet               bool
	log                 *slog.Logger
	warned              map[string]bool // the flags about whose files warnOnce has logged a warning

	tls        tlsSettings
	zookeeper  zooKeeperSettings
	etcd       etcdSettings
	changefeed changefeedSettings
	raftlog    cmdline.PeerSettings
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(configuration.Normalize)
	cmdline.RegisterGroup(flags, groupElection, func(flags *pflag.FlagSet) {
		flags.StringVar(&s.backend, "backend", "", "system that stores the election: "+backendNames()+" (default: the one whose servers are given)")
		flags.StringVar(&s.instanceID, flagInstanceID, "", "name of this instance, visible to others (default: host name, process ID and a random part)")
		flags.StringVar(&s.election, flagElection, "/election", "name of the election; on zookeeper the path of its znode, on etcd its key (ELECTOR_KEY)")
		flags.String(cmdline.FlagConfig, "", "YAML file; its keys are the flags of run, and command: a list of the program and its arguments")
		flags.DurationVar(&s.sessionTimeout, "session-timeout", 4*time.Second, "session timeout to request; zookeeper servers may grant a different one, which is then used. On raftlog the time after which an unresponsive leader is replaced. On changefeed the lease: an unresponsive leader is replaced after 0.6 to 2.3 times of it")
	})
	s.raftlog = cmdline.PeerSettings{Program: "elector", PeerCommand: "run", Warn: s.warnOnce, Cluster: "elector"}
	for name, k := range backendKinds {
		if k.flags != nil {
			cmdline.RegisterGroup(flags, groupBackend+name, func(flags *pflag.FlagSet) { k.flags(s, flags) })
		}
	}
	cmdline.RegisterGroup(flags, groupTLS, s.tls.register)
	cmdline.RegisterGroup(flags, groupLogging, func(flags *pflag.FlagSet) {
		cmdline.RegisterLog(flags, &s.logFormat, &s.logLevel)
		flags.BoolVar(&s.quiet, "quiet", false, "log warnings and errors only, even if --log-level is debug or info")
	})
}

// complete checks the settings of all commands, and sets the settings whose defaults are computed.
func (s *settings) complete(cmd *cobra.Command) (err error) {
	if s.instanceID == "" {
		s.instanceID = newInstanceID()
	}
	if err := checkText(flagInstanceID, s.instanceID, maxInstanceID); err != nil {
		return err
	}
	if d, err := cmd.Flags().GetDuration("timeout"); err == nil && (d < 0 || d == 0 && !slices.Contains([]string{"run", "config", "doctor"}, cmd.Name())) {
		return usage("--timeout %v: must be more than zero", d)
	}
	s.inferBackend()
	least := slog.LevelDebug
	if s.quiet {
		least = slog.LevelWarn
	}
	if s.log, err = cmdline.NewLogger(cmd.ErrOrStderr(), s.logFormat, s.logLevel, least); err != nil {
		return usage("--%w", err)
	}
	s.warnOnce("--"+cmdline.FlagConfig, s.configWarning)
	return nil
}

// warnOnce logs a warning about the file of a flag, unless the warning is empty or a warning about this flag was
// logged before.
func (s *settings) warnOnce(flag, warning string) {
	if warning == "" || s.warned[flag] {
		return
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[flag] = true
	s.log.Warn("credentials are not private", "err", flag+": "+warning)
}

// hasCredentials reports whether the memory of this process contains, or will contain, credentials.
func (s *settings) hasCredentials() bool {
	for _, text := range []string{
		s.zookeeper.auth, s.etcd.password, s.changefeed.store, s.changefeed.password, s.raftlog.Secret, s.raftlog.SecretFile, s.tls.files.Key,
	} {
		if text != "" {
			return true
		}
	}
	return false
}

// monitorFiles logs warnings about the files of certificates and secrets until stop is called.
func (s *settings) monitorFiles() (stop func()) {
	return s.tls.files.Monitor(s.log, s.raftlog.Files()...)
}

// requestedTimeout returns the session timeout that the user has set, or its default.
func (s *settings) requestedTimeout() time.Duration { return s.sessionTimeout }

// effectiveTimeout returns the session timeout that elector requests from the backend. Some backends require a
// rounded value.
func (s *settings) effectiveTimeout() time.Duration {
	if f := backendKinds[s.backend].sessionTimeout; f != nil {
		return f(s)
	}
	return s.requestedTimeout()
}

// newInstanceID returns a name for this instance that no other instance has.
func newInstanceID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// tlsSettings are the flags for TLS between elector and the servers of a backend.
type tlsSettings struct {
	enabled    bool // the flag --tls; files of certificates enable TLS as well
	files      cmdline.Certificates
	allowPlain bool // the flag --allow-plain-credentials
}

func (t *tlsSettings) register(flags *pflag.FlagSet) {
	flags.BoolVar(&t.enabled, "tls", false, "connect with TLS; without --ca-file the authorities of the system are trusted")
	t.files.Register(flags)
	flags.BoolVar(&t.allowPlain, "allow-plain-credentials", false, "send passwords and other credentials without TLS, also to servers that are not on this machine")
}

// isSet reports whether a flag enables TLS.
func (t *tlsSettings) isSet() bool { return t.enabled || t.files != (cmdline.Certificates{}) }

// checkLogin returns a usage error if a client would send a credential without TLS to one of the servers, unless the
// user allows this or the server is on this machine. The servers may contain ports. config is nil without TLS.
func (t *tlsSettings) checkLogin(backend, credential string, servers []string, config *tls.Config) error {
	login := transport.Login{
		Backend: backend, Credential: credential, TLS: config != nil, Explicit: t.allowPlain,
		Setting: "set for example --tls, or --allow-plain-credentials",
	}
	for _, server := range servers {
		login.Hosts = append(login.Hosts, transport.Host(server))
	}
	if err := login.Check(); err != nil {
		return usage("%w", err)
	}
	return nil
}

// clientConfig returns the TLS configuration of a client, or nil if the client does not use TLS. If required is true,
// the client uses TLS even if no flag enables it. fixed must be true if the dialer does not use transport.ForServer;
// the file of --ca-file is then read only once.
func (t *tlsSettings) clientConfig(required, fixed bool) (*tls.Config, error) {
	if !required && !t.isSet() {
		return nil, nil
	}
	read := t.files.Config
	if fixed {
		read = t.files.FixedConfig
	}
	c, err := read()
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
