package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/tlsfile"
)

// secretVariable is the environment variable that contains the secret if no flag does.
const secretVariable = "RAFTLOG_SECRET"

// clusterFlags contains the flags that all commands for a cluster have.
type clusterFlags struct {
	file      string
	secret    string
	overrides settings // contains the values of flags
	insecure  bool
	stderr    func() io.Writer
}

// groupAccess is the group of the flags of access in help texts.
const groupAccess = "Access to the cluster"

func (f *clusterFlags) register(cmd *cobra.Command) {
	f.stderr = cmd.ErrOrStderr
	cmdline.RegisterGroup(cmd.Flags(), groupAccess, f.addFlags)
}

func (f *clusterFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "config", "c", "", "configuration file, YAML (see raftlog defaults)")
	flags.StringVar(&f.overrides.Cluster, "cluster", "", "name of the cluster")
	flags.StringVarP(&f.secret, "secret", "k", "", "secret of the cluster; other users of this machine can see it, unlike with --secret-file and "+secretVariable)
	flags.StringVar(&f.overrides.SecretFile, "secret-file", "", "file that contains the secret")
	flags.StringVar(&f.overrides.CAFile, "ca-file", "", "certificates of the authority of the peers, PEM")
	flags.StringVar(&f.overrides.CertFile, "cert-file", "", "certificate of this process, PEM")
	flags.StringVar(&f.overrides.KeyFile, "key-file", "", "key of --cert-file, PEM")
	flags.StringSliceVar(&f.overrides.AllowedNames, "allowed-names", nil, "names of the certificates to accept, as DNS name, IP address, URI or common name (default: all of --ca-file)")
	flags.BoolVar(&f.insecure, "insecure", false, "no authentication and no encryption")
}

// loadSettings returns the settings of the configuration file, which flags and the environment
// override.
func (f *clusterFlags) loadSettings() (settings, error) {
	s, err := readSettings(f.file)
	if err != nil {
		return s, err
	}
	for _, o := range []struct {
		to   *string
		from string
	}{
		{&s.Cluster, f.overrides.Cluster}, {&s.CAFile, f.overrides.CAFile}, {&s.CertFile, f.overrides.CertFile}, {&s.KeyFile, f.overrides.KeyFile},
	} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	if len(f.overrides.AllowedNames) > 0 {
		s.AllowedNames = f.overrides.AllowedNames
	}
	s.Insecure = s.Insecure || f.insecure
	switch env := os.Getenv(secretVariable); {
	case f.secret != "":
		s.Secret, s.SecretFile = f.secret, ""
	case f.overrides.SecretFile != "":
		s.Secret, s.SecretFile = "", f.overrides.SecretFile
	case env != "":
		s.Secret, s.SecretFile = env, ""
	case s.Secret != "" && s.SecretFile != "":
		return s, newUsageError("-c %s contains both secret and secret-file: remove one of them", f.file)
	}
	return s, s.validate()
}

// credentials returns the secret and the certificates that authenticate this process. It may add warnings
// to s.
func (s *settings) credentials() (secret []byte, certificates *tls.Config, err error) {
	secret = []byte(s.Secret)
	if s.SecretFile != "" {
		var warning string
		if secret, warning, err = cmdline.ReadPrivate(s.SecretFile); err != nil {
			return nil, nil, newUsageError("--secret-file: %w", err)
		}
		s.warn("--secret-file", warning)
		if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
			return nil, nil, newUsageError("--secret-file %s is empty: write a secret to it, for example by head -c 32 /dev/urandom | base64", s.SecretFile)
		}
	}
	if certificates, err = s.tlsFiles().PeerConfig(s.AllowedNames); err != nil {
		return nil, nil, newUsageError("%w", err)
	}
	if n := len(secret); n > 0 && n < minSecret {
		return nil, nil, newUsageError("the secret has %d bytes, and needs at least %d: head -c 32 /dev/urandom | base64 makes one", n, minSecret)
	}
	configured := len(secret) > 0 || certificates != nil
	switch {
	case s.Insecure && configured:
		return nil, nil, newUsageError("--insecure excludes a secret and certificates: remove it, or remove them")
	case !s.Insecure && !configured:
		return nil, nil, newUsageError("authentication required: set --secret-file FILE, %s, or --ca-file, --cert-file and --key-file; or --insecure for none", secretVariable)
	}
	return secret, certificates, nil
}

func (s settings) tlsFiles() tlsfile.Files {
	return tlsfile.Files{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile}
}

// minSecret is the minimum length of a secret in bytes.
const minSecret = 16

// clientFlags contains the flags of commands that send requests to peers.
type clientFlags struct {
	clusterFlags
	timeout  durationFlag
	seedHint string // describes, for errors, how an argument of the command gives the address of a peer
}

func (c *clientFlags) register(cmd *cobra.Command, timeout time.Duration, usage string) {
	c.clusterFlags.register(cmd)
	flags := cmd.Flags()
	c.timeout, c.seedHint = durationFlag(timeout), ", or give the address of one, such as 10.0.0.1:8047"
	short := "t"
	if flags.ShorthandLookup(short) != nil {
		short = ""
	}
	flags.VarP(&c.timeout, "timeout", short, usage+", such as 2s, or a number of milliseconds")
}

// newClient returns a client of the given peers, or of the peers in the configuration file.
func (c *clientFlags) newClient(seeds []string) (*client.Client, settings, error) {
	s, err := c.loadSettings()
	if err != nil {
		return nil, s, err
	}
	secret, certificates, err := s.credentials()
	if err != nil {
		return nil, s, err
	}
	for _, warning := range s.warnings {
		fmt.Fprintln(c.stderr(), "raftlog: warning:", cmdline.Printable(warning))
	}
	peers := s.peers()
	if len(seeds) > 0 {
		peers = nil
	}
	for _, seed := range seeds {
		p, err := parsePeer(seed)
		if err != nil {
			return nil, s, err
		}
		if p.ID == p.Addr {
			p.ID = "" // the ID is not known
		}
		peers = append(peers, p)
	}
	switch {
	case s.Cluster == "":
		return nil, s, newUsageError("the name of the cluster is missing: set cluster in the file of -c, or --cluster NAME")
	case len(peers) == 0:
		return nil, s, newUsageError("the peers are missing: set peers in the file of -c%s", c.seedHint)
	}
	cl, err := client.New(client.Config{
		Cluster: s.Cluster, Peers: peers, Secret: secret, TLS: certificates, Insecure: s.Insecure,
		CallTimeout: min(time.Duration(c.timeout), callTimeout), Refresh: -1,
	})
	if isInvalid(err) {
		err = newUsageError("%w", err)
	}
	return cl, s, err
}

// callTimeout limits the time in which a peer must answer a request that it can answer immediately.
const callTimeout = time.Second

// withTimeout returns a context that is done after the timeout.
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
		err = errors.New("it must be positive, such as 2s")
	}
	*l = durationFlag(d)
	return err
}
