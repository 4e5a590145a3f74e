package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
)

// These environment variables contain the secrets if no flag does.
const (
	secretVariable       = "RAFTLOG_SECRET"
	clientSecretVariable = "RAFTLOG_CLIENT_SECRET"
)

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
	flags.StringVarP(&f.secret, "secret", "k", "", "secret of the peers; other users of this machine can see it, unlike with --secret-file and "+secretVariable)
	flags.StringVar(&f.overrides.SecretFile, "secret-file", "", "file that contains the secret of the peers, for serve")
	flags.StringVar(&f.overrides.ClientSecretFile, "client-secret-file", "", "file that contains the secret of clients, for all other commands, and for serve to accept them")
	flags.StringVar(&f.overrides.CAFile, "ca-file", "", "certificates of the authority of the peers, PEM")
	flags.StringVar(&f.overrides.CertFile, "cert-file", "", "certificate of this process, PEM")
	flags.StringVar(&f.overrides.KeyFile, "key-file", "", "key of --cert-file, PEM")
	flags.StringSliceVar(&f.overrides.AllowedNames, "allowed-names", nil, "names of the certificates of peers, as DNS name, IP address, URI or common name (default: those with the ID of the peer or the host of its address)")
	flags.StringSliceVar(&f.overrides.AllowedClientNames, "allowed-client-names", nil, "the same for clients that connect to serve (default: --allowed-names, or else all of --ca-file)")
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
	if len(f.overrides.AllowedClientNames) > 0 {
		s.AllowedClientNames = f.overrides.AllowedClientNames
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
	switch env := os.Getenv(clientSecretVariable); {
	case f.overrides.ClientSecretFile != "":
		s.ClientSecret, s.ClientSecretFile = "", f.overrides.ClientSecretFile
	case env != "":
		s.ClientSecret, s.ClientSecretFile = env, ""
	case s.ClientSecret != "" && s.ClientSecretFile != "":
		return s, newUsageError("-c %s contains both client-secret and client-secret-file: remove one of them", f.file)
	}
	return s, s.validate()
}

// credentials contains what authenticates a process: secrets, certificates, or both. The fields are nil if
// they are not configured.
type credentials struct {
	peers, clients *credentialfile.Secrets
	roles          *credentialfile.Roles // of peerCredentials
	certificates   *tls.Config
}

// peerCredentials returns the credentials of a peer. It may add warnings to s. log receives a message each time
// secrets are replaced.
func (s *settings) peerCredentials(log *slog.Logger) (c credentials, err error) {
	if c.peers, err = s.readSecrets("--secret-file", s.SecretFile, s.Secret, log); err != nil {
		return c, err
	}
	if c.clients, err = s.readSecrets("--client-secret-file", s.ClientSecretFile, s.ClientSecret, log); err != nil {
		return c, err
	}
	if c.peers == nil && c.clients != nil {
		return c, newUsageError("there is a secret of clients (client-secret-file or %s), and none of peers: set --secret-file FILE or %s", clientSecretVariable, secretVariable)
	}
	if c.roles, err = credentialfile.NewRoles(c.peers, c.clients, log); err != nil {
		return c, newUsageError("%w", err)
	}
	return c, s.readCertificates(&c, c.peers != nil, "--secret-file FILE, "+secretVariable)
}

// clientCredentials returns the credentials of a command that is a client. It does not read the secret of
// peers.
func (s *settings) clientCredentials() (c credentials, err error) {
	if c.clients, err = s.readSecrets("--client-secret-file", s.ClientSecretFile, s.ClientSecret, nil); err != nil {
		return c, err
	}
	if c.clients == nil && (s.Secret != "" || s.SecretFile != "") {
		return c, newUsageError("this command is a client, and the secret of peers is not valid for clients: set client-secret-file in the file of -c, --client-secret-file FILE or %s, with the secret that the peers accept by client-secret-file", clientSecretVariable)
	}
	return c, s.readCertificates(&c, c.clients != nil, "--client-secret-file FILE, "+clientSecretVariable)
}

func (s *settings) readSecrets(flag, file, value string, log *slog.Logger) (*credentialfile.Secrets, error) {
	secrets, warning, err := credentialfile.ReadSecrets(credentialfile.SecretFile{Flag: flag, Name: file}, value, log)
	if err != nil {
		return nil, newUsageError("%w", err)
	}
	s.warn(flag, warning)
	return secrets, nil
}

// readCertificates sets the certificates, and checks that the process is authenticated in some way, unless
// s is insecure. secretSettings are those that a secret needs.
func (s *settings) readCertificates(c *credentials, hasSecret bool, secretSettings string) (err error) {
	if c.certificates, err = s.tlsFiles().PeerConfig(append(s.AllowedNames, s.AllowedClientNames...)); err != nil {
		return newUsageError("%w", err)
	}
	configured := hasSecret || c.certificates != nil
	switch {
	case s.Insecure && configured:
		return newUsageError("--insecure excludes a secret and certificates: remove it, or remove them")
	case !s.Insecure && !configured:
		return newUsageError("authentication required: set %s, or --ca-file, --cert-file and --key-file; or --insecure for none", secretSettings)
	}
	return nil
}

// secretFiles returns the files of secrets.
func (s settings) secretFiles() []credentialfile.SecretFile {
	return []credentialfile.SecretFile{{Flag: "--secret-file", Name: s.SecretFile}, {Flag: "--client-secret-file", Name: s.ClientSecretFile}}
}

func (s settings) tlsFiles() credentialfile.Certificates {
	return credentialfile.Certificates{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile}
}

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
	own, err := s.clientCredentials()
	if err != nil {
		return nil, s, err
	}
	var secret func() []byte
	if own.clients != nil {
		secret = own.clients.First
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
		Cluster: s.Cluster, Peers: peers, GetSecret: secret, TLS: own.certificates, AllowedNames: s.AllowedNames, Insecure: s.Insecure,
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
