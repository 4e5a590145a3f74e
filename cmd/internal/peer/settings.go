// Package peer declares and reads the settings of peers of a Raft log and of their clients, which the commands
// elector and raftlog have in common.
package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
)

// Access contains the settings with which peers of a Raft log and their clients authenticate each other.
type Access struct {
	// Program is the name of the program, and PeerCommand that of its command that runs a peer. All other
	// commands are clients.
	Program, PeerCommand string
	// Warn receives the flag of a file of secrets that all users can read, and the reason.
	Warn func(flag, warning string)

	Secret, SecretFile             string // of peers
	ClientSecret, ClientSecretFile string
	AllowedNames                   []string // of the certificates of peers
	AllowedClientNames             []string
	Insecure                       bool
}

// Register registers the flags.
func (a *Access) Register(flags *pflag.FlagSet) {
	usage := func(text string) string {
		return strings.NewReplacer("COMMAND", a.PeerCommand, "PREFIX_", a.variable("")).Replace(text)
	}
	flags.StringVar(&a.SecretFile, "secret-file", "", usage("file that contains the secret of all peers, for COMMAND only, at least 16 random bytes; it encrypts connections; a second line is the other secret while one replaces the other"))
	flags.StringVar(&a.Secret, "secret", "", usage("the secret of all peers; preferably set by --secret-file or PREFIX_SECRET, which other users of this machine cannot see"))
	flags.StringVar(&a.ClientSecretFile, "client-secret-file", "", usage("file that contains the secret of clients, which differs from that of peers: for commands other than COMMAND, and for COMMAND to accept them"))
	flags.StringVar(&a.ClientSecret, "client-secret", "", usage("the secret of clients; preferably set by --client-secret-file or PREFIX_CLIENT_SECRET"))
	flags.StringSliceVar(&a.AllowedNames, "allowed-names", nil, "names of the certificates of peers, as DNS name, IP address, URI or common name (default: those with the ID of the peer or the host of its address)")
	flags.StringSliceVar(&a.AllowedClientNames, "allowed-client-names", nil, usage("names of the certificates of clients, for COMMAND only (default: --allowed-names, or else all of --ca-file)"))
	flags.BoolVar(&a.Insecure, "insecure", false, "no authentication and no encryption of peers")
}

// Files returns the files of secrets.
func (a *Access) Files() []credentialfile.SecretFile {
	return []credentialfile.SecretFile{{Flag: "--secret-file", Name: a.SecretFile}, {Flag: "--client-secret-file", Name: a.ClientSecretFile}}
}

// Peer returns what authenticates a peer. secrets, which is nil without a secret, returns the current ones.
// config is nil without certificates. log receives a message each time secrets are replaced.
func (a *Access) Peer(files credentialfile.Certificates, log *slog.Logger) (secrets func() (peers, clients [][]byte), config *tls.Config, err error) {
	peers, err := a.read("secret", a.SecretFile, a.Secret, log)
	if err != nil {
		return nil, nil, err
	}
	clients, err := a.read("client-secret", a.ClientSecretFile, a.ClientSecret, log)
	if err != nil {
		return nil, nil, err
	}
	if peers == nil && clients != nil {
		return nil, nil, fmt.Errorf("--client-secret-file: there is a secret of clients, and none of peers, which need another one: set --secret-file or %s as well, for example --secret-file /etc/%s/secret", a.variable("secret"), a.Program)
	}
	roles, err := credentialfile.NewRoles(peers, clients, log)
	if err != nil {
		return nil, nil, err
	}
	if peers != nil {
		secrets = roles.Current
	}
	config, err = a.certificates(files, peers, "secret")
	return secrets, config, err
}

// Client returns what authenticates a client. secret, which is nil without a secret, returns the current one.
// config is nil without certificates. The secret of peers is not read.
func (a *Access) Client(files credentialfile.Certificates) (secret func() []byte, config *tls.Config, err error) {
	clients, err := a.read("client-secret", a.ClientSecretFile, a.ClientSecret, nil)
	switch {
	case err != nil:
		return nil, nil, err
	case clients != nil:
		secret = clients.First
	case a.Secret != "" || a.SecretFile != "":
		return nil, nil, fmt.Errorf("this command is a client, and the secret of peers is not valid for clients: set --client-secret-file or %s, with the secret that %s accepts by --client-secret-file, for example --client-secret-file /etc/%s/client-secret", a.variable("client-secret"), a.PeerCommand, a.Program)
	}
	config, err = a.certificates(files, clients, "client-secret")
	return secret, config, err
}

// read returns the secrets of a role, or nil if none is set. name is the name of the flag of the secret.
func (a *Access) read(name, file, value string, log *slog.Logger) (*credentialfile.Secrets, error) {
	flag := fmt.Sprintf("%s (%s)", name, a.variable(name))
	if file != "" {
		flag = "--" + name + "-file"
	}
	secrets, warning, err := credentialfile.ReadSecrets(credentialfile.SecretFile{Flag: flag, Name: file}, value, log)
	if err == nil && warning != "" {
		a.Warn(flag, warning)
	}
	return secrets, err
}

// variable returns the environment variable of a flag.
func (a *Access) variable(flag string) string {
	return strings.ToUpper(a.Program + "_" + strings.ReplaceAll(flag, "-", "_"))
}

// certificates returns the configuration for the certificates, or nil without them, after checking that a
// process with these secrets, from a flag with this name, is authenticated in some way, unless that is not
// wanted.
func (a *Access) certificates(files credentialfile.Certificates, secrets *credentialfile.Secrets, name string) (*tls.Config, error) {
	config, err := files.PeerConfig(slices.Concat(a.AllowedNames, a.AllowedClientNames))
	if err != nil {
		return nil, err
	}
	switch authenticated := secrets != nil || config != nil; {
	case a.Insecure && authenticated:
		return nil, errors.New("--insecure is not compatible with a secret or certificates: omit it, or use it without them, for example --insecure on a private network")
	case !a.Insecure && !authenticated:
		return nil, fmt.Errorf("peer authentication required: set --%s-file, %s, or --ca-file, --cert-file and --key-file; or --insecure for none; for example --%s-file /etc/%s/%s", name, a.variable(name), name, a.Program, name)
	}
	return config, nil
}
