package main

import (
	"context"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, for machines without the Debian package
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// newSystems returns the systems to compare, with this session timeout or lease duration.
func newSystems(timeout time.Duration) []system {
	return []system{
		{"this library on ZooKeeper", timeout, onZooKeeper(timeout)},
		{"this library on etcd", timeout, onEtcd(libraryOnEtcd(timeout))},
		{"etcd concurrency", timeout, onEtcd(concurrencyOnEtcd(timeout))},
		{"client-go leaderelection, same lease duration", timeout, onKubernetes(timeout)},
		{"client-go leaderelection, defaults", defaultLeaseDuration, onKubernetes(defaultLeaseDuration)},
	}
}

// onZooKeeper uses this library on a ZooKeeper server. Every candidate uses a separate session.
func onZooKeeper(timeout time.Duration) systemStarter {
	return func(ctx context.Context) (candidateJoiner, func(), error) {
		server, err := ensemble.StartBenchmarked(ctx, 1, time.Second)
		if err != nil {
			return nil, nil, err
		}
		join := func(name string) (*candidate, error) {
			n := new(network)
			conn, _, err := zkdial.Connect(server.Addrs(), timeout, zkdial.WithDialer(n.dial))
			if err != nil {
				return nil, err
			}
			e, err := leaderelection.NewElection(conn, "/election",
				leaderelection.WithCreateNode(), leaderelection.WithName(name))
			if err != nil {
				conn.Close()
				return nil, err
			}
			return compete(e, n, conn.Close), nil
		}
		return join, func() { _ = server.Close() }, nil
	}
}

// libraryOnEtcd joins the election on etcd with this library.
func libraryOnEtcd(timeout time.Duration) joinEtcd {
	return func(c *connection, name string) (*candidate, error) {
		e, err := etcd.NewElection(c.client, "/election",
			etcd.WithCreateNode(), etcd.WithName(name), etcd.WithSessionTimeout(timeout))
		if err != nil {
			return nil, err
		}
		return compete(e, c.network, c.close), nil
	}
}

// compete starts a candidacy. The function release closes the candidate's connection.
func compete(e leaderelection.Candidate, n *network, release func()) *candidate {
	c := &candidate{leads: make(chan time.Time, 1), crash: n.crash, resign: e.Resign}
	go e.ElectLeader()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for status := range e.Status() {
			if status.Role == leaderelection.Leader {
				c.leads <- time.Now()
			}
		}
	}()
	c.close = func() {
		_ = e.Resign() // ignore the error, because a candidate cannot confirm a resignation after a crash
		<-ended
		release()
	}
	return c
}
