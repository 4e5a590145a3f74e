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

// etcd is the server of etcd, embedded: an update is a put, and no client's connection
// stands between.
type etcd struct{}

const etcdName = "etcd (embedded)"

func (etcd) name() string     { return etcdName }
func (etcd) settings() string { return "defaults" }

type etcdCluster struct {
	nodes [nodes]*embed.Etcd
	ended [nodes]sync.Once
	puts  atomic.Uint64
}

func (e etcd) start(ctx context.Context, dir string, t timeouts) (cluster, error) {
	addresses, err := freeAddresses(nodes)
	if err != nil {
		return nil, err
	}
	c := new(etcdCluster)
	// One after another: each asks those whose ports are open, and would wait for their answers.
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
	own := []url.URL{{Scheme: "http", Host: addresses[i]}}
	c.ListenPeerUrls, c.AdvertisePeerUrls = own, own
	nobody := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.AdvertiseClientUrls = nobody, nobody
	var members []string
	for j, address := range addresses {
		members = append(members, fmt.Sprintf("%d=http://%s", j, address))
	}
	c.InitialCluster, c.InitialClusterToken = strings.Join(members, ","), dir
	c.QuotaBackendBytes = 8 << 30 // a long run must not end by it
	if t == quick {
		c.TickMs, c.ElectionMs = 20, 200
	}
	return c
}

// freeAddresses are n of loopback where nobody listens: members must know each other's
// before they listen themselves.
func freeAddresses(n int) ([]string, error) {
	var free []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("look for a free port: %w", err)
		}
		defer l.Close() // all at the end, so that they differ
		free = append(free, l.Addr().String())
	}
	return free, nil
}

func (c *etcdCluster) leads(node int) bool {
	s := c.nodes[node].Server
	return s.Leader() == s.MemberID()
}

// propose puts under one of a thousand keys, as the index of keys is not what is measured.
func (c *etcdCluster) propose(ctx context.Context, node int, data []byte) error {
	key := fmt.Appendf(nil, "%03d", c.puts.Add(1)%1000)
	_, err := c.nodes[node].Server.Put(ctx, &pb.PutRequest{Key: key, Value: data})
	return err
}

// applied: the revision of an empty store is 1, and every put adds 1.
func (c *etcdCluster) applied(node int) uint64 { return uint64(c.nodes[node].Server.KV().Rev()) - 1 }

// halt cuts the node off first: raft goes on while HardStop waits for what is under way.
// HardStop transfers nothing, unlike Close, for which nothing is left to transfer then.
func (c *etcdCluster) halt(node int) error {
	c.ended[node].Do(func() {
		c.nodes[node].Server.PauseSending() // and receiving
		c.nodes[node].Server.HardStop()
		c.nodes[node].Close()
	})
	return nil
}

func (c *etcdCluster) stop() error {
	return inParallel(func(i int) error {
		if c.nodes[i] == nil {
			return nil
		}
		return c.halt(i)
	})
}

// inParallel calls do for every node and waits for all.
func inParallel(do func(node int) error) error {
	var wg sync.WaitGroup
	var failures [nodes]error
	for i := range nodes {
		wg.Go(func() { failures[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(failures[:]...)
}
