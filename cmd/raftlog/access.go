package main

// The access to a cluster: a file, flags and the environment.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/tlsfile"
)

// secretVariable is the environment variable that contains the secret if no flag does.
const secretVariable = "RAFTLOG_SECRET"

// access contains the flags that all commands for a cluster have.
type access struct {
	file     string
	secret   string
	over     settings // those of flags
	insecure bool
}

// groupAccess is the group of the flags of access in help texts.
const groupAccess = "Access to the cluster"

func (a *access) register(flags *pflag.FlagSet) { cmdline.RegisterGroup(flags, groupAccess, a.add) }

func (a *access) add(flags *pflag.FlagSet) {
	flags.StringVarP(&a.file, "config", "c", "", "configuration file, YAML (see raftlog defaults)")
	flags.StringVar(&a.over.Cluster, "cluster", "", "name of the cluster")
	flags.StringVarP(&a.secret, "secret", "k", "", "secret of the cluster; other users of this machine can see it, unlike with --secret-file and "+secretVariable)
	flags.StringVar(&a.over.SecretFile, "secret-file", "", "file that contains the secret")
	flags.StringVar(&a.over.CAFile, "ca-file", "", "certificates of the authority of the peers, PEM")
	flags.StringVar(&a.over.CertFile, "cert-file", "", "certificate of this process, PEM")
	flags.StringVar(&a.over.KeyFile, "key-file", "", "key of --cert-file, PEM")
	flags.StringSliceVar(&a.over.AllowedNames, "allowed-names", nil, "names of the certificates to accept, as DNS name, IP address, URI or common name (default: all of --ca-file)")
	flags.BoolVar(&a.insecure, "insecure", false, "no authentication and no encryption")
}

// load returns the settings of the file, overridden by flags and the environment.
func (a *access) load() (settings, error) {
	s, err := loadSettings(a.file)
	if err != nil {
		return s, err
	}
	for _, o := range []struct {
		to   *string
		from string
	}{
		{&s.Cluster, a.over.Cluster}, {&s.CAFile, a.over.CAFile}, {&s.CertFile, a.over.CertFile}, {&s.KeyFile, a.over.KeyFile},
	} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	if len(a.over.AllowedNames) > 0 {
		s.AllowedNames = a.over.AllowedNames
	}
	s.Insecure = s.Insecure || a.insecure
	switch env := os.Getenv(secretVariable); {
	case a.secret != "":
		s.Secret, s.SecretFile = a.secret, ""
	case a.over.SecretFile != "":
		s.Secret, s.SecretFile = "", a.over.SecretFile
	case env != "":
		s.Secret, s.SecretFile = env, ""
	case s.Secret != "" && s.SecretFile != "":
		return s, usage("-c %s contains both secret and secret-file: remove one of them", a.file)
	}
	return s, s.check()
}

// proof returns what authenticates this process to the cluster.
func (s settings) proof() (secret []byte, certificates *tls.Config, err error) {
	secret = []byte(s.Secret)
	if s.SecretFile != "" {
		if secret, err = os.ReadFile(s.SecretFile); err != nil {
			return nil, nil, usage("--secret-file: %w", err)
		}
		if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
			return nil, nil, usage("--secret-file %s is empty: write a secret to it, for example by head -c 32 /dev/urandom | base64", s.SecretFile)
		}
	}
	files := tlsfile.Files{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile}
	if certificates, err = files.PeerConfig(s.AllowedNames); err != nil {
		return nil, nil, usage("%w", err)
	}
	if n := len(secret); n > 0 && n < minSecret {
		return nil, nil, usage("the secret has %d bytes, and needs at least %d: head -c 32 /dev/urandom | base64 makes one", n, minSecret)
	}
	proven := len(secret) > 0 || certificates != nil
	switch {
	case s.Insecure && proven:
		return nil, nil, usage("--insecure excludes a secret and certificates: remove it, or remove them")
	case !s.Insecure && !proven:
		return nil, nil, usage("authentication required: set --secret-file FILE, %s, or --ca-file, --cert-file and --key-file; or --insecure for none", secretVariable)
	}
	return secret, certificates, nil
}

// minSecret is the minimum length of a secret in bytes.
const minSecret = 16

// caller is the access of commands that send requests to peers.
type caller struct {
	access
	timeout limit
	seeds   string // how to give the command the address of a peer, for errors
}

func (c *caller) register(flags *pflag.FlagSet, timeout time.Duration, what string) {
	c.access.register(flags)
	c.timeout, c.seeds = limit(timeout), ", or give the address of one, such as 10.0.0.1:8047"
	short := "t"
	if flags.ShorthandLookup(short) != nil {
		short = ""
	}
	flags.VarP(&c.timeout, "timeout", short, what+", such as 2s, or a number of milliseconds")
}

// client returns a client of the given peers, or if there are none, of those in the file.
func (c *caller) client(seeds []string) (*client.Client, settings, error) {
	s, err := c.load()
	if err != nil {
		return nil, s, err
	}
	secret, certificates, err := s.proof()
	if err != nil {
		return nil, s, err
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
			p.ID = "" // it is unknown
		}
		peers = append(peers, p)
	}
	switch {
	case s.Cluster == "":
		return nil, s, usage("the name of the cluster is missing: set cluster in the file of -c, or --cluster NAME")
	case len(peers) == 0:
		return nil, s, usage("the peers are missing: set peers in the file of -c%s", c.seeds)
	}
	cl, err := client.New(client.Config{
		Cluster: s.Cluster, Peers: peers, Secret: secret, TLS: certificates, Insecure: s.Insecure,
		CallTimeout: min(time.Duration(c.timeout), callTimeout), Refresh: -1,
	})
	if isInvalid(err) {
		err = usage("%w", err)
	}
	return cl, s, err
}

// callTimeout limits the time of an answer that a peer can give immediately.
const callTimeout = time.Second

// within bounds ctx by the timeout.
func (c *caller) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(c.timeout),
		fmt.Errorf("no answer within %v: are the peers running, and reachable from here? --timeout gives them longer", time.Duration(c.timeout)))
}

// limit is a duration that can be written as a number of milliseconds.
type limit time.Duration

func (l *limit) String() string { return time.Duration(*l).String() }
func (l *limit) Type() string   { return "ms" }

func (l *limit) Set(text string) error {
	d, err := time.ParseDuration(text)
	if ms, e := strconv.ParseUint(text, 10, 31); e == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err == nil && d <= 0 {
		err = errors.New("it must be positive, such as 2s")
	}
	*l = limit(d)
	return err
}
