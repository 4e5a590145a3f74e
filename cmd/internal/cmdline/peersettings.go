package cmdline

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// PeerSettings contains the settings of a peer and of a client.
type PeerSettings struct {
	// Program is the name of the program. PeerCommand is the command of the program that runs a peer; all other
	// commands run clients.
	Program, PeerCommand string
	// Warn is called if all users can read a file of secrets, with the flag of the file and the reason.
	Warn func(flag, warning string)

	Cluster, ID, Dir, Listen string
	Peers                    PeerList

	Secret, SecretFile             string // the secret of peers, and its file
	ClientSecret, ClientSecretFile string
	AllowedNames                   []string // the allowed names of the certificates of peers
	AllowedClientNames             []string
	Insecure                       bool
}

// RegisterPeer registers the flags for the identity, the data and the address of a peer, and for the other peers.
func (s *PeerSettings) RegisterPeer(flags *pflag.FlagSet) {
	flags.StringVar(&s.ID, "peer-id", "", "ID of the peer, which replaces {id} in paths; an ID must not be used again: a peer that has lost its data returns with a new one")
	flags.StringVar(&s.Dir, "dir", "", "directory of the data of the peer; {id} stands for its ID")
	flags.StringVar(&s.Listen, "peer-listen", "", "address on which the peer listens, host:port (default: its address)")
	flags.Var(&s.Peers, "peers", "peers that start the cluster, the same for all of them: id=host:port,... or tcp://host:port/id,... or, in the file, mappings of id and addr; if the log exists, these are only the peers to contact")
}

// RegisterAccess registers the flags for the cluster, its secrets and its certificates, with which a peer or a client
// gains access.
func (s *PeerSettings) RegisterAccess(flags *pflag.FlagSet) {
	flags.StringVar(&s.Cluster, "cluster", s.Cluster, "name of the cluster, the same for all peers and clients")
	usage := func(text string) string {
		return strings.NewReplacer("COMMAND", s.PeerCommand, "PREFIX_", s.variableName("")).Replace(text)
	}
	flags.StringVar(&s.SecretFile, "secret-file", "", usage("file that contains the secret of all peers, for COMMAND only, at least 16 random bytes; it encrypts connections; a second line is the other secret while one replaces the other"))
	flags.StringVar(&s.Secret, "secret", "", usage("the secret of all peers; preferably set by --secret-file or PREFIX_SECRET, which other users of this machine cannot see"))
	flags.StringVar(&s.ClientSecretFile, "client-secret-file", "", usage("file that contains the secret of clients, which differs from that of peers: for commands other than COMMAND, and for COMMAND to accept them"))
	flags.StringVar(&s.ClientSecret, "client-secret", "", usage("the secret of clients; preferably set by --client-secret-file or PREFIX_CLIENT_SECRET"))
	flags.StringSliceVar(&s.AllowedNames, "allowed-names", nil, "names of the certificates of peers, as DNS name, IP address, URI or common name (default: those with the ID of the peer or the host of its address)")
	flags.StringSliceVar(&s.AllowedClientNames, "allowed-client-names", nil, usage("names of the certificates of clients, for COMMAND only (default: --allowed-names, or else all of --ca-file)"))
	flags.BoolVar(&s.Insecure, "insecure", false, "no authentication and no encryption of peers")
}

// Files returns the files that contain secrets.
func (s *PeerSettings) Files() []SecretFile {
	return []SecretFile{{Flag: "--secret-file", Name: s.SecretFile}, {Flag: "--client-secret-file", Name: s.ClientSecretFile}}
}

// ExpandPath replaces {id} in a path by the ID of the peer, and returns an error if the ID is not set.
func (s *PeerSettings) ExpandPath(path string) (string, error) {
	if s.ID == "" && strings.Contains(path, "{id}") {
		return "", fmt.Errorf("%q contains {id}, and the ID of the peer is missing: set it by --peer-id, such as --peer-id a", path)
	}
	return strings.ReplaceAll(path, "{id}", s.ID), nil
}

// Addr returns the address that Peers contains for the ID of this peer, or "" if Peers does not contain the ID.
func (s *PeerSettings) Addr() string {
	if i := slices.IndexFunc(s.Peers, func(p api.Peer) bool { return p.ID == s.ID }); i >= 0 {
		return s.Peers[i].Addr
	}
	return ""
}

// Peer returns the secrets and the TLS configuration with which a peer authenticates itself. The function secrets,
// which is nil without a secret, returns the current ones. config is nil without certificates. log receives a message
// each time a file of secrets is replaced.
func (s *PeerSettings) Peer(files Certificates, log *slog.Logger) (secrets func() api.Secrets, config *tls.Config, err error) {
	peers, err := s.read("secret", s.SecretFile, s.Secret, log)
	if err != nil {
		return nil, nil, err
	}
	clients, err := s.read("client-secret", s.ClientSecretFile, s.ClientSecret, log)
	if err != nil {
		return nil, nil, err
	}
	if peers == nil && clients != nil {
		return nil, nil, fmt.Errorf("--client-secret-file: there is a secret of clients, and none of peers, which need another one: set --secret-file or %s as well, for example --secret-file /etc/%s/secret", s.variableName("secret"), s.Program)
	}
	roles, err := NewRoles(peers, clients, log)
	if err != nil {
		return nil, nil, err
	}
	if peers != nil {
		secrets = func() (now api.Secrets) {
			now.Peers, now.Clients = roles.Current()
			return now
		}
	}
	config, err = s.certificates(files, peers, "secret")
	return secrets, config, err
}

// Client returns the secret and the TLS configuration with which a client authenticates itself. The function secret,
// which is nil without a secret, returns the current one. config is nil without certificates. Client does not read
// the secret of peers.
func (s *PeerSettings) Client(files Certificates) (secret func() []byte, config *tls.Config, err error) {
	clients, err := s.read("client-secret", s.ClientSecretFile, s.ClientSecret, nil)
	switch {
	case err != nil:
		return nil, nil, err
	case clients != nil:
		secret = clients.First
	case s.Secret != "" || s.SecretFile != "":
		return nil, nil, fmt.Errorf("this command is a client, and the secret of peers is not valid for clients: set --client-secret-file or %s, with the secret that %s accepts by --client-secret-file, for example --client-secret-file /etc/%s/client-secret", s.variableName("client-secret"), s.PeerCommand, s.Program)
	}
	config, err = s.certificates(files, clients, "client-secret")
	return secret, config, err
}

// read reads the secrets of a role from a file or, if file is empty, from value, and passes a warning about the file
// to s.Warn. It returns nil if file and value are empty. name is the name of the flag that sets value.
func (s *PeerSettings) read(name, file, value string, log *slog.Logger) (*Secrets, error) {
	flag := fmt.Sprintf("%s (%s)", name, s.variableName(name))
	if file != "" {
		flag = "--" + name + "-file"
	}
	secrets, warning, err := ReadSecrets(SecretFile{Flag: flag, Name: file}, value, log)
	if err == nil && warning != "" {
		s.Warn(flag, warning)
	}
	return secrets, err
}

// variableName returns the name of the environment variable that sets a flag.
func (s *PeerSettings) variableName(flag string) string {
	return strings.ToUpper(s.Program + "_" + strings.ReplaceAll(flag, "-", "_"))
}

// certificates returns the TLS configuration for files, or nil without certificates. It returns an error if the
// process has neither certificates nor secrets, unless --insecure is set, and if --insecure is set although it has
// some. name is the name of the flag for the secret, for the error.
func (s *PeerSettings) certificates(files Certificates, secrets *Secrets, name string) (*tls.Config, error) {
	config, err := files.PeerConfig(slices.Concat(s.AllowedNames, s.AllowedClientNames))
	if err != nil {
		return nil, err
	}
	switch authenticated := secrets != nil || config != nil; {
	case s.Insecure && authenticated:
		return nil, errors.New("--insecure is not compatible with a secret or certificates: omit it, or use it without them, for example --insecure on a private network")
	case !s.Insecure && !authenticated:
		return nil, fmt.Errorf("peer authentication required: set --%s-file, %s, or --ca-file, --cert-file and --key-file; or --insecure for none; for example --%s-file /etc/%s/%s", name, s.variableName(name), name, s.Program, name)
	}
	return config, nil
}
