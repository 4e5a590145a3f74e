package etcd_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl      = 12 * time.Second // a busy machine may be slow for many seconds, and no lease expires
	patience = time.Minute
	node     = "/election"
)

// cluster is a cluster of etcd servers and the test's clients of it.
type cluster struct {
	*etcdserver.Cluster
	t testing.TB
}

// startServers starts a cluster of n servers, which ends with the test.
func startServers(t testing.TB, n int) *cluster {
	t.Helper()
	return &cluster{etcdserver.Start(t, etcdserver.Config{Members: n}), t}
}

// Client returns a client of all servers, which is closed with the test, after each of the
// functions has changed its configuration.
func (c *cluster) Client(change ...func(*clientv3.Config)) *clientv3.Client {
	c.t.Helper()
	cfg := clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	for _, f := range change {
		f(&cfg)
	}
	client, err := clientv3.New(cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { client.Close() })
	return client
}

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

func (p *program) cut() { p.proxy.Blackhole(zkproxy.Both) }

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

// resigns makes the candidate resign when it is requested to.
func (c *candidate) resigns() {
	asked := c.ResignRequested()
	ctx, cancel := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case <-asked:
			_ = c.Resign()
		case <-ctx.Done():
		}
	})
	c.t.Cleanup(func() { cancel(); listening.Wait() })
}

// ends waits for the end of a leadership.
func ends(t *testing.T, l *leaderelection.Leadership) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(5 * ttl):
		t.Fatal("the leadership does not end")
	}
}

// within fails the test if f takes too long.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s: not within %v", what, limit)
	}
}

func leaseOf(t *testing.T, id string) clientv3.LeaseID {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(id, node+"/"), 16, 64)
	require.NoError(t, err)
	return clientv3.LeaseID(n)
}

// revoke ends a candidate's lease as its expiry does.
func revoke(t *testing.T, client *clientv3.Client, id string) {
	t.Helper()
	_, err := client.Revoke(t.Context(), leaseOf(t, id))
	require.NoError(t, err)
}

// value is that of the election node.
func value(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	got, err := client.Get(t.Context(), node)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

func ask(client *clientv3.Client, id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return etcd.AskToResign(client, node, id, etcd.WithContext(ctx), etcd.WithSessionTimeout(ttl))
}

// reader returns a client whose user may read everything and write nothing.
func reader(t *testing.T, srv *cluster, root *clientv3.Client) *clientv3.Client {
	t.Helper()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "reader", "secret"); return err },
		func() error { _, err := root.RoleAdd(ctx, "reads"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "reads", "\x00", "\x00", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := root.UserGrantRole(ctx, "reader", "reads"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, do())
	}
	return srv.Client(func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "reader", "secret" })
}

// faults is what goes wrong with a client's requests. Its fields are functions that are asked
// for each request, and may be nil; set changes them.
type faults struct {
	mu sync.Mutex
	// loseReply: the request is carried out, and its answer does not come.
	loseReply func(method string, request any) bool
	// refuse: the request is not sent.
	refuse func(method string) error
	// refuseRequest: the same, given the request.
	refuseRequest func(request any) error
	// keptTerm changes the term that a keepalive's answer shows.
	keptTerm func(term uint64) uint64
	keptTTL  func(ttl int64) int64
	// omitLeases: replies to requests for keys only are without leases, as those of etcd 3.7.
	omitLeases bool
	sentPuts   int
	keepSents  int
}

func (f *faults) set(change func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) config(cfg *clientv3.Config) {
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithUnaryInterceptor(f.unary), grpc.WithStreamInterceptor(f.stream))
}

func (f *faults) refused(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		return nil
	}
	return f.refuse(method)
}

func (f *faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := f.refused(method); err != nil {
		return err
	}
	f.mu.Lock()
	refuse := f.refuseRequest
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(req); err != nil {
			return err
		}
	}
	err := invoker(ctx, method, req, reply, cc, opts...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.omitLeases && err == nil {
		omitLeases(req, reply)
	}
	if isPut(req) {
		f.sentPuts++
	}
	if err == nil && f.loseReply != nil && f.loseReply(method, req) {
		return status.Error(codes.Unavailable, "the answer is lost")
	}
	return err
}

func (f *faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := f.refused(method); err != nil {
		return nil, err
	}
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &faultyStream{s, f}, nil
}

// isPut reports whether a request is a transaction that puts.
func isPut(req any) bool {
	txn, ok := req.(*etcdserverpb.TxnRequest)
	return ok && len(txn.Success) > 0 && txn.Success[0].GetRequestPut() != nil
}

type faultyStream struct {
	grpc.ClientStream
	f *faults
}

func (s *faultyStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if kept, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil {
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		s.f.keepSents++
		if s.f.keptTerm != nil {
			kept.Header.RaftTerm = s.f.keptTerm(kept.Header.RaftTerm)
		}
		if s.f.keptTTL != nil {
			kept.TTL = s.f.keptTTL(kept.TTL)
		}
	}
	return err
}

// omitLeases removes the leases from replies to requests for keys only.
func omitLeases(req, reply any) {
	omit := func(r *etcdserverpb.RangeRequest, got *etcdserverpb.RangeResponse) {
		if r.GetKeysOnly() && got != nil {
			for _, kv := range got.Kvs {
				kv.Lease = 0
			}
		}
	}
	switch req := req.(type) {
	case *etcdserverpb.RangeRequest:
		omit(req, reply.(*etcdserverpb.RangeResponse))
	case *etcdserverpb.TxnRequest:
		got := reply.(*etcdserverpb.TxnResponse)
		done := req.Failure
		if got.Succeeded {
			done = req.Success
		}
		for i, op := range done {
			omit(op.GetRequestRange(), got.Responses[i].GetResponseRange())
		}
	}
}
