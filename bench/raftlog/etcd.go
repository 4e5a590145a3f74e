package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
)

// etcdLog is a log of nodes that run etcd's server in this process. An update is a put. The benchmark
// calls the server directly, without a client connection.
type etcdLog struct{}

const etcdName = "etcd (embedded)"

func (etcdLog) name() string     { return etcdName }
func (etcdLog) settings() string { return "defaults" }

type etcdCluster struct {
	configs [nodes]*embed.Config
	nodes   [nodes]*embed.Etcd
	halts   [nodes]*sync.Once
	puts    atomic.Uint64
}

func (e etcdLog) start(ctx context.Context, dir string, t timeouts) (cluster, error) {
	addresses, err := freeAddresses(nodes)
	if err != nil {
		return nil, err
	}
	c := new(etcdCluster)
	// Start the nodes one after another: when a node starts, it queries the members whose ports are open, and
	// would wait for the responses of members that are starting as well.
	for i := range c.nodes {
		c.configs[i] = e.config(i, dir, addresses, t)
		c.halts[i] = new(sync.Once)
		if c.nodes[i], err = embed.StartEtcd(c.configs[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("start node %d: %w", i, err), c.stop())
		}
	}
	for i, node := range c.nodes {
		if err := waitReady(ctx, node); err != nil {
			return nil, errors.Join(fmt.Errorf("node %d: %w", i, err), c.stop())
		}
	}
	return c, nil
}

func waitReady(ctx context.Context, node *embed.Etcd) error {
	select {
	case <-node.Server.ReadyNotify():
		return nil
	case err := <-node.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("the server is not ready: %w", context.Cause(ctx))
	}
}

// config returns the configuration of node i of a cluster whose nodes have the given addresses.
func (etcdLog) config(i int, dir string, addresses []string, t timeouts) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = fmt.Sprint(i), filepath.Join(dir, fmt.Sprint(i))
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	peerURL := []url.URL{{Scheme: "http", Host: addresses[i]}}
	c.ListenPeerUrls, c.AdvertisePeerUrls = peerURL, peerURL
	clientURL := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.AdvertiseClientUrls = clientURL, clientURL
	var members []string
	for j, address := range addresses {
		members = append(members, fmt.Sprintf("%d=http://%s", j, address))
	}
	c.InitialCluster, c.InitialClusterToken = strings.Join(members, ","), dir
	c.QuotaBackendBytes = 8 << 30 // a quota of 8 GiB, which a long run does not exceed
	c.StrictReconfigCheck = false // the strict check would reject a learner in the first 5 s after a restart of a node
	if t == shortTimeouts {
		c.TickMs, c.ElectionMs = 20, 200
	}
	return c
}

// freeAddresses returns n unused addresses of loopback. Members must know each other's addresses
// before they listen.
func freeAddresses(n int) ([]string, error) {
	var free []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // close the listeners only at the end, so that all ports differ
		free = append(free, l.Addr().String())
	}
	return free, nil
}

func (c *etcdCluster) isLeader(node int) bool {
	s := c.nodes[node].Server
	return s.Leader() == s.MemberID()
}

// propose puts data into one of a thousand keys, so that the index of keys stays small.
func (c *etcdCluster) propose(ctx context.Context, node int, data []byte) error {
	key := fmt.Appendf(nil, "%03d", c.puts.Add(1)%1000)
	_, err := c.nodes[node].Server.Put(ctx, &pb.PutRequest{Key: key, Value: data})
	return err
}

// applied returns the number of puts, computed from the revision of the store: 1 for an empty store,
// and 1 more for each put.
func (c *etcdCluster) applied(node int) uint64 { return uint64(c.nodes[node].Server.KV().Rev()) - 1 }

// halt disconnects the node first, because raft continues while HardStop waits for requests in flight.
// Unlike Close, HardStop does not transfer leadership; Close, which is called after it, cannot transfer
// it any more.
func (c *etcdCluster) halt(node int) error {
	c.halts[node].Do(func() {
		c.nodes[node].Server.PauseSending() // disconnect the node: PauseSending also stops receiving
		c.nodes[node].Server.HardStop()
		c.nodes[node].Close()
	})
	return nil
}

func (c *etcdCluster) stop() error {
	return forAllNodes(func(i int) error {
		if c.nodes[i] == nil {
			return nil
		}
		return c.halt(i)
	})
}

// growState adds keys: the snapshot of a node is a copy of its database.
func (c *etcdCluster) growState(ctx context.Context, node int, size int64) error {
	const part = 1 << 20
	var wg sync.WaitGroup
	var next atomic.Int64
	var failure atomic.Pointer[error]
	for range loadClients {
		wg.Go(func() {
			data := newData(part)
			for n := next.Add(1); n <= size/part && failure.Load() == nil; n = next.Add(1) {
				_, err := c.nodes[node].Server.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "large %d", n), Value: data})
				if err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// snapshot does what etcdctl snapshot save does, without a client connection.
func (c *etcdCluster) snapshot(_ context.Context, node int) (err error) {
	f, err := os.Create(filepath.Join(c.configs[node].Dir, "copy"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	backend := c.nodes[node].Server.Backend()
	backend.ForceCommit()
	s := backend.Snapshot()
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.WriteTo(f); err != nil {
		return err
	}
	return f.Sync()
}

func (c *etcdCluster) restart(ctx context.Context, node int) (err error) {
	if err := c.halt(node); err != nil {
		return err
	}
	c.halts[node] = new(sync.Once)
	if c.nodes[node], err = embed.StartEtcd(c.configs[node]); err != nil {
		return err
	}
	return waitReady(ctx, c.nodes[node])
}

func (c *etcdCluster) join(ctx context.Context) (*learner, error) {
	var addresses []string
	for _, config := range c.configs {
		addresses = append(addresses, config.ListenPeerUrls[0].Host)
	}
	own, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	config := etcdLog{}.config(nodes, filepath.Dir(c.configs[0].Dir), append(addresses, own...), defaultTimeouts)
	config.TickMs, config.ElectionMs = c.configs[0].TickMs, c.configs[0].ElectionMs
	config.InitialClusterToken, config.ClusterState = c.configs[0].InitialClusterToken, embed.ClusterStateFlagExisting
	leader, _ := findLeader(c, -1)
	now := time.Now()
	member := membership.NewMemberAsLearner("", types.URLs(config.AdvertisePeerUrls), config.InitialClusterToken, &now)
	if _, err := c.nodes[leader].Server.AddMember(ctx, *member); err != nil {
		return nil, err
	}
	node, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	return &learner{
		func() uint64 { return uint64(node.Server.KV().Rev()) - 1 },
		func() error {
			node.Server.HardStop()
			node.Close()
			return nil
		},
	}, nil
}

func (c *etcdCluster) read(ctx context.Context, node int) error {
	return c.nodes[node].Server.LinearizableReadNotify(ctx)
}

// compact removes the history of keys. Defragment makes the file of the database smaller.
func (c *etcdCluster) compact(ctx context.Context) error {
	server := c.nodes[0].Server
	if _, err := server.Compact(ctx, &pb.CompactionRequest{Revision: server.KV().Rev(), Physical: true}); err != nil {
		return err
	}
	return forAllNodes(func(i int) error { return c.nodes[i].Server.Defragment() })
}

// forAllNodes calls f for every node in parallel and waits for all calls.
func forAllNodes(f func(node int) error) error {
	var wg sync.WaitGroup
	var failures [nodes]error
	for i := range nodes {
		wg.Go(func() { failures[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(failures[:]...)
}
