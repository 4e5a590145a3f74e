package etcd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// newFactory returns a factory of elections on one server. Each group uses a separate key.
func newFactory(srv *cluster, opts ...etcd.Option) electiontest.Factory {
	var mu sync.Mutex
	groups := 0
	return func(t electiontest.TB) *electiontest.Group {
		mu.Lock()
		defer mu.Unlock()
		groups++
		key := fmt.Sprint(node, groups)
		type client struct {
			*clientv3.Client
			proxy *zkproxy.Proxy
		}
		clients := map[int]client{}
		clientOf := func(i int) (c client, err error) {
			mu.Lock()
			defer mu.Unlock()
			if c, ok := clients[i]; ok {
				return c, nil
			}
			if c.proxy, err = zkproxy.New(srv.Addr(0)); err != nil {
				return c, err
			}
			c.Client, err = clientv3.New(clientv3.Config{Endpoints: []string{"http://" + c.proxy.Addr()}, Logger: zap.NewNop()})
			clients[i] = c
			return c, err
		}
		t.Cleanup(func() { // This cleanup is registered before the cleanup of the candidates, and so runs after it.
			for _, c := range clients {
				if c.Client != nil {
					c.Close()
				}
				c.proxy.Close()
			}
		})
		cut := func(i int) func() {
			c, err := clientOf(i)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return func() {}
			}
			c.proxy.Blackhole(zkproxy.Both)
			return c.proxy.Unblackhole
		}
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				c, err := clientOf(i)
				if err != nil {
					return nil, err
				}
				all := append([]etcd.Option{etcd.WithCreateNode(), etcd.WithSessionTimeout(10 * time.Second)}, opts...)
				return etcd.NewElection(c.Client, key, all...)
			},
			Crash:   func(i int) { cut(i) },
			Cut:     cut,
			InOrder: true,
		}
	}
}

// TestElection_SatisfiesContract checks that an Election satisfies the contract of candidates.
func TestElection_SatisfiesContract(t *testing.T) {
	factory := newFactory(startServersAlone(t, 1))
	for _, c := range electiontest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if c.Name != "Leaks" { // The case Leaks counts the goroutines of all tests, so it cannot run in parallel.
				t.Parallel()
			}
			c.Run(t, factory)
		})
	}
}

// TestElection_SatisfiesContractWithRejoin checks that an Election with WithRejoin satisfies the contract too. It
// runs only the cases in which a lease ends, because WithRejoin has no effect in the others.
func TestElection_SatisfiesContractWithRejoin(t *testing.T) {
	factory := newFactory(startServersAlone(t, 1), etcd.WithRejoin())
	for _, c := range electiontest.Cases() {
		switch c.Name {
		case "LeaderIsCutOff", "EndElection":
			t.Run(c.Name, func(t *testing.T) { c.Run(t, factory) })
		}
	}
}
