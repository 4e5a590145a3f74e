package main

// How a command gets access to a cluster: by a file, by flags, by the environment.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

// secretVariable has the secret, unless a flag does.
const secretVariable = "RAFTLOG_SECRET"

// access is the flags that all commands for a cluster have.
type access struct {
	file     string
	secret   string
	over     settings // those of flags
	insecure bool
}

func (a *access) register(flags *pflag.FlagSet) {
	flags.StringVarP(&a.file, "config", "c", "", "YAML file (see raftlog defaults)")
	flags.StringVar(&a.over.Cluster, "cluster", "", "the cluster's name")
	flags.StringVarP(&a.secret, "secret", "k", "", "the cluster's secret; others on this machine can see it, other than by --secret-file or "+secretVariable)
	flags.StringVar(&a.over.SecretFile, "secret-file", "", "file with the secret")
	flags.StringVar(&a.over.CAFile, "ca-file", "", "certificates of the peers' authority, PEM")
	flags.StringVar(&a.over.CertFile, "cert-file", "", "certificate of this process, PEM")
	flags.StringVar(&a.over.KeyFile, "key-file", "", "key of --cert-file, PEM")
	flags.BoolVar(&a.insecure, "insecure", false, "believe everybody, and encrypt nothing")
}

// load reads the file, and puts over it what flags say.
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
	s.Insecure = s.Insecure || a.insecure
	switch env := os.Getenv(secretVariable); {
	case a.secret != "":
		s.Secret, s.SecretFile = a.secret, ""
	case a.over.SecretFile != "":
		s.Secret, s.SecretFile = "", a.over.SecretFile
	case env != "":
		s.Secret, s.SecretFile = env, ""
	case s.Secret != "" && s.SecretFile != "":
		return s, usage("-c %s has both secret and secret-file: leave one out", a.file)
	}
	return s, nil
}

// proof is what proves who belongs to the cluster.
func (s settings) proof() (secret []byte, certificates *tls.Config, err error) {
	secret = []byte(s.Secret)
	if s.SecretFile != "" {
		if secret, err = os.ReadFile(s.SecretFile); err != nil {
			return nil, nil, usage("secret file: %w", err)
		}
		if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
			return nil, nil, usage("secret file %s is empty", s.SecretFile)
		}
	}
	if certificates, err = s.certificates(); err != nil {
		return nil, nil, err
	}
	proven := len(secret) > 0 || certificates != nil
	switch {
	case s.Insecure && proven:
		return nil, nil, usage("insecure, and a secret or certificates, exclude each other")
	case !s.Insecure && !proven:
		return nil, nil, usage("there is no secret: give it by --secret-file, %s or -k, or certificates, or --insecure", secretVariable)
	}
	return secret, certificates, nil
}

// certificates is nil without any.
func (s settings) certificates() (*tls.Config, error) {
	if s.CAFile == "" && s.CertFile == "" && s.KeyFile == "" {
		return nil, nil
	}
	if s.CAFile == "" || s.CertFile == "" || s.KeyFile == "" {
		return nil, usage("ca-file, cert-file and key-file belong together")
	}
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, usage("ca-file: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, usage("ca-file %s: no certificate in it", s.CAFile)
	}
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, usage("cert-file, key-file: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		RootCAs: authority, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

// caller is access for commands that ask peers.
type caller struct {
	access
	timeout limit
	seeds   string // how the command is told a peer to ask, for errors
}

func (c *caller) register(flags *pflag.FlagSet, timeout time.Duration, what string) {
	c.access.register(flags)
	c.timeout, c.seeds = limit(timeout), ", or give host:port of one"
	short := "t"
	if flags.ShorthandLookup(short) != nil {
		short = ""
	}
	flags.VarP(&c.timeout, "timeout", short, what+", in milliseconds or such as 2s")
}

// client speaks to those peers, or if there are none to those of the file.
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
			p.ID = "" // whoever that is
		}
		peers = append(peers, p)
	}
	switch {
	case s.Cluster == "":
		return nil, s, usage("which cluster? Set cluster in the file of -c, or --cluster")
	case len(peers) == 0:
		return nil, s, usage("which peers? Set peers in the file of -c%s", c.seeds)
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

// callTimeout is how long a peer has to answer what it can answer at once.
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
		err = errors.New("it has to be more than nothing")
	}
	*l = limit(d)
	return err
}
