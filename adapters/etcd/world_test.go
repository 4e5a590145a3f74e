package etcd_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

const (
	ttl      = 12 * time.Second // a busy machine may be slow for many seconds, and no lease expires
	patience = time.Minute
	node     = "/election"
)

// program is a client whose network can be cut.
type program struct {
	t      *testing.T
	proxy  *zkproxy.Proxy
	client *clientv3.Client
}

func newProgram(t *testing.T, srv *cluster, change ...func(*clientv3.Config)) *program {
	t.Helper()
	proxy, err := zkproxy.New(srv.Addr(0))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through := func(cfg *clientv3.Config) { cfg.Endpoints = []string{"http://" + proxy.Addr()} }
	client := srv.Client(append([]func(*clientv3.Config){through}, change...)...)
	return &program{t, proxy, client}
}

func (p *program) cut()  { p.proxy.Blackhole(zkproxy.Both) }
func (p *program) heal() { p.proxy.Unblackhole() }

// elect makes a candidate and has it take part.
func elect(t *testing.T, client *clientv3.Client, opts ...etcd.Option) *candidate {
	t.Helper()
	all := append([]etcd.Option{etcd.WithCreateNode(), etcd.WithSessionTimeout(ttl)}, opts...)
	e, err := etcd.NewElection(client, node, all...)
	require.NoError(t, err)
	c := &candidate{Election: e, t: t, ended: make(chan error, 1)}
	c.running.Go(func() { c.ended <- e.ElectLeader() })
	t.Cleanup(func() {
		_ = e.Resign()
		c.running.Wait()
	})
	return c
}

// candidate is one that takes part.
type candidate struct {
	*etcd.Election
	t       *testing.T
	ended   chan error
	running sync.WaitGroup
}

// until reads statuses until one is as wanted.
func (c *candidate) until(what string, want func(leaderelection.Status) bool) leaderelection.Status {
	c.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case s, ok := <-c.Status():
			if !ok {
				require.Fail(c.t, "the channel is closed", what)
			}
			if want(s) {
				return s
			}
		case <-limit:
			require.Fail(c.t, "never: "+what, "%v", c.Current())
		}
	}
}

func (c *candidate) leads() *leaderelection.Leadership {
	c.t.Helper()
	return c.until("leader", func(s leaderelection.Status) bool { return s.Role == leaderelection.Leader }).Leadership
}

func (c *candidate) follows(id string) {
	c.t.Helper()
	c.until("follows "+id, func(s leaderelection.Status) bool { return s.NowFollowing == id })
}

// endsWith waits for the end of the candidacy.
func (c *candidate) endsWith(want error) {
	c.t.Helper()
	c.until("final", func(s leaderelection.Status) bool { return s.Err != nil })
	require.ErrorIs(c.t, <-c.ended, want)
}
