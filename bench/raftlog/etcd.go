package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcd is a log of nodes that run etcd's server in this process. An update is a put. The benchmark
// calls the server directly, without a client connection.
type etcd struct{}

const etcdName = "etcd (embedded)"

func (etcd) name() string     { return etcdName }
func (etcd) settings() string { return "defaults" }

type etcdCluster struct {
	nodes [nodes]*embed.Etcd
	halts [nodes]sync.Once
	puts  atomic.Uint64
}

func (e etcd) start(ctx context.Context, dir string, t timeouts) (cluster, error) {
	addresses, err := freeAddresses(nodes)
	if err != nil {
		return nil, err
	}
	c := new(etcdCluster)
	// Nodes start one after another: each of them queries the members whose ports are open, and would
	// wait for their responses.
	for i := range c.nodes {
		if c.nodes[i], err = embed.StartEtcd(e.config(i, dir, addresses, t)); err != nil {
			return nil, errors.Join(fmt.Errorf("start node %d: %w", i, err), c.stop())
		}
	}
	for i, node := range c.nodes {
		select {
		case <-node.Server.ReadyNotify():
		case err := <-node.Err():
			return nil, errors.Join(fmt.Errorf("node %d: %w", i, err), c.stop())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("node %d is not ready: %w", i, context.Cause(ctx)), c.stop())
		}
	}
	return c, nil
}

func (etcd) config(i int, dir string, addresses []string, t timeouts) *embed.Config {
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
	c.QuotaBackendBytes = 8 << 30 // a long run must not exceed the quota
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
		defer l.Close() // closed only after the last port was found, so that all ports differ
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
		c.nodes[node].Server.PauseSending() // PauseSending also stops receiving
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
