package main

import (
	"github.com/spf13/pflag"
)

// This file declares the settings of the backends that a build tag can exclude. The declarations are part of every
// build, but a build registers the flags only if it contains the backend.

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
