package main

import (
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/credentialfile"
)

// The settings of the backends that a build tag can exclude are declared in every build. Their flags are
// registered only if the build contains the backend.

type etcdSettings struct {
	endpoints      []string
	user, password string
}

func (e *etcdSettings) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&e.endpoints, "etcd-endpoints", nil, "addresses of the servers, host:port,... or URLs; also --etcd-members")
	flags.StringVar(&e.user, "etcd-user", "", "user name, if etcd requires authentication")
	flags.StringVar(&e.password, "etcd-password", "", "password of --etcd-user; preferably set by ELECTOR_ETCD_PASSWORD")
}

const flagStoreUnsafe = "store-unsafe"

type changefeedSettings struct {
	store, password string
	unsafe          []string
}

func (c *changefeedSettings) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.store, "store", "", "address of the database: postgres://user@host/database, redis://host, nats://host, ...")
	flags.StringVar(&c.password, "store-password", "", "password for --store; preferably set by ELECTOR_STORE_PASSWORD")
	flags.StringSliceVar(&c.unsafe, flagStoreUnsafe, nil, "risks of the deployment of the store to accept: failover, restart, power-loss")
}

type raftlogSettings struct {
	peers                []string
	peerID, data, listen string
	cluster              string
	secret, secretFile   string // of peers
	// clientSecret and clientSecretFile are those of clients.
	clientSecret, clientSecretFile string
	allowedNames                   []string // of the certificates of peers
	allowedClientNames             []string
	insecure                       bool
}

// secretFiles returns the files of secrets.
func (r *raftlogSettings) secretFiles() []credentialfile.SecretFile {
	return []credentialfile.SecretFile{{Flag: "--secret-file", Name: r.secretFile}, {Flag: "--client-secret-file", Name: r.clientSecretFile}}
}

func (r *raftlogSettings) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&r.peers, "peers", nil, "all peers, the same for each of them: id=host:port,...")
	flags.StringVar(&r.peerID, "peer-id", "", "ID of this process in --peers; for run and config only")
	flags.StringVar(&r.data, "data", "", "directory of the data of this peer; it is created if it does not exist; for run and config only")
	flags.StringVar(&r.listen, "peer-listen", "", "address on which this peer listens, host:port (default: its address in --peers)")
	flags.StringVar(&r.cluster, "cluster", "elector", "name of the cluster, the same for all peers")
	flags.StringVar(&r.secretFile, "secret-file", "", "file that contains the secret of all peers, for run only, at least 16 random bytes; it encrypts connections; a second line is the other secret while one replaces the other")
	flags.StringVar(&r.secret, "secret", "", "the secret; preferably set by --secret-file or ELECTOR_SECRET")
	flags.StringVar(&r.clientSecretFile, "client-secret-file", "", "the same for clients, with another secret: for commands other than run, and for run to accept them")
	flags.StringVar(&r.clientSecret, "client-secret", "", "the secret of clients; preferably set by --client-secret-file or ELECTOR_CLIENT_SECRET")
	flags.StringSliceVar(&r.allowedNames, "allowed-names", nil, "names of the certificates of peers, as DNS name, IP address, URI or common name (default: those with the ID of the peer or the host of its address)")
	flags.StringSliceVar(&r.allowedClientNames, "allowed-client-names", nil, "the same for clients, for run only (default: --allowed-names, or else all of --ca-file)")
	flags.BoolVar(&r.insecure, "insecure", false, "no authentication and no encryption of peers")
}
