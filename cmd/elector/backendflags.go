package main

import (
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection/cmd/internal/peer"
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
	access               peer.Access
}

func (r *raftlogSettings) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&r.peers, "peers", nil, "all peers, the same for each of them: id=host:port,...")
	flags.StringVar(&r.peerID, "peer-id", "", "ID of this process in --peers; for run and config only")
	flags.StringVar(&r.data, "data", "", "directory of the data of this peer; it is created if it does not exist; for run and config only")
	flags.StringVar(&r.listen, "peer-listen", "", "address on which this peer listens, host:port (default: its address in --peers)")
	flags.StringVar(&r.cluster, "cluster", "elector", "name of the cluster, the same for all peers")
	r.access.Program, r.access.PeerCommand = "elector", "run"
	r.access.Register(flags)
}
