package etcd_test

import (
	"bufio"
	"context"
	"flag"
	"net/http"
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
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

var complete = flag.Bool("etcd.complete", false, "run the complete form of tests that have a short form")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl      = 12 * time.Second // ttl is long, so that no lease expires although a busy machine may stall for seconds.
	patience = time.Minute
	node     = "/election"
)

// cluster is a cluster of etcd servers and the test's clients of it.
type cluster struct {
	*dbserver.EtcdCluster
	t testing.TB
}

// startServers starts a cluster of n servers until the test ends. The test runs in parallel with
// others.
func startServers(t *testing.T, n int) *cluster {
	t.Helper()
	t.Parallel()
	return startServersAlone(t, n)
}

// startServersAlone starts a cluster like startServers, for a test that must not run in parallel with
// others.
func startServersAlone(t *testing.T, n int) *cluster {
	t.Helper()
	return &cluster{dbserver.StartEtcd(t, dbserver.EtcdConfig{Members: n}), t}
}

// Client returns a client of all servers that is closed when the test ends. Each of the functions
// changes its configuration.
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

// enableAuth enables authentication. It returns the configuration of clients that have a permission for the
// keys from start to end.
func (c *cluster) enableAuth(permission, start, end string) func(*clientv3.Config) {
	c.t.Helper()
	c.EnableAuth(permission, start, end)
	return func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "user", dbserver.EtcdPassword }
}

// metric returns the sum of a metric of the first server over all of its labels that contain label.
func (c *cluster) metric(name, label string) (sum float64) {
	c.t.Helper()
	response, err := http.Get(c.URL(0) + "/metrics")
	require.NoError(c.t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name+"{") && strings.Contains(line, label) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			require.NoError(c.t, err)
			sum += value
		}
	}
	return sum
}

// proxiedClient is a client whose network can be cut.
type proxiedClient struct {
	*clientv3.Client
	proxy *zkproxy.Proxy
}

// newProxiedClient returns a client of the first server. Each of the functions changes its configuration.
func newProxiedClient(t *testing.T, c *cluster, change ...func(*clientv3.Config)) *proxiedClient {
	t.Helper()
	proxy, err := zkproxy.New(c.Addr(0))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	client := c.Client(append(change, func(cfg *clientv3.Config) { cfg.Endpoints = []string{"http://" + proxy.Addr()} })...)
	return &proxiedClient{client, proxy}
}

// cutConnection drops all messages until heal is called. Connections stay open.
func (c *proxiedClient) cutConnection() { c.proxy.Blackhole(zkproxy.Both) }
func (c *proxiedClient) heal()          { c.proxy.Unblackhole() }

// candidate is a candidate that has joined the election.
type candidate struct {
	*etcd.Election
	t       *testing.T
	ended   chan error // ended receives the result of ElectLeader.
	running sync.WaitGroup
}

// startCandidate starts a candidate, which resigns when the test ends.
func startCandidate(t *testing.T, client *clientv3.Client, opts ...etcd.Option) *candidate {
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

// startLeader starts a candidate like startCandidate, and waits until it leads.
func startLeader(t *testing.T, client *clientv3.Client, opts ...etcd.Option) *candidate {
	t.Helper()
	c := startCandidate(t, client, opts...)
	c.waitForLeadership()
	return c
}

// startFollower starts a candidate like startCandidate, and waits until it follows another candidate.
func startFollower(t *testing.T, predecessor *candidate, client *clientv3.Client, opts ...etcd.Option) *candidate {
	t.Helper()
	c := startCandidate(t, client, opts...)
	c.waitForPredecessor(predecessor.ID())
	return c
}

// waitForStatus receives statuses until wanted returns true for one of them.
func (c *candidate) waitForStatus(what string, wanted func(leaderelection.Status) bool) leaderelection.Status {
	c.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case s, ok := <-c.Status():
			if !ok {
				require.Fail(c.t, "the channel of statuses is closed", what)
			}
			if wanted(s) {
				return s
			}
		case <-limit:
			require.Fail(c.t, "the candidate has not published the status: "+what, "%v", c.Current())
		}
	}
}

func (c *candidate) waitForLeadership() *leaderelection.Leadership {
	c.t.Helper()
	return c.waitForStatus("leader", func(s leaderelection.Status) bool { return s.Role == leaderelection.Leader }).Leadership
}

func (c *candidate) waitForPredecessor(id string) {
	c.t.Helper()
	c.waitForStatus("following "+id, func(s leaderelection.Status) bool { return s.NowFollowing == id })
}

// waitForError waits until the candidacy is over, and requires that its error is want.
func (c *candidate) waitForError(want error) {
	c.t.Helper()
	c.waitForStatus("final", func(s leaderelection.Status) bool { return s.Err != nil })
	require.ErrorIs(c.t, <-c.ended, want)
}

// resignOnRequest makes the candidate resign when a client requests it.
func (c *candidate) resignOnRequest() {
	requested := c.ResignRequested()
	ctx, cancel := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case <-requested:
			_ = c.Resign()
		case <-ctx.Done():
		}
	})
	c.t.Cleanup(func() { cancel(); listening.Wait() })
}

// waitForLoss waits until the leadership is lost.
func waitForLoss(t *testing.T, l *leaderelection.Leadership) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(5 * ttl):
		t.Fatal("the leadership is not lost")
	}
}

// requireReturn fails the test if f takes too long.
func requireReturn(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s does not return within %v", name, patience)
	}
}

// leaseOf returns the lease of the candidate with the given ID.
func leaseOf(t *testing.T, id string) clientv3.LeaseID {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(id, node+"/"), 16, 64)
	require.NoError(t, err)
	return clientv3.LeaseID(n)
}

// revokeLease revokes a candidate's lease, as its expiry would.
func revokeLease(t *testing.T, client *clientv3.Client, id string) {
	t.Helper()
	_, err := client.Revoke(t.Context(), leaseOf(t, id))
	require.NoError(t, err)
}

// nodeValue returns the value of the election node.
func nodeValue(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	got, err := client.Get(t.Context(), node)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

// requestResign calls RequestResign, for at most patience.
func requestResign(client *clientv3.Client, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return etcd.RequestResign(ctx, client, node, id, etcd.WithSessionTimeout(ttl))
}

// faults injects faults between a client and its connections. Functions that are nil have no effect;
// the others are called for each request to which they apply.
type faults struct {
	mu sync.Mutex
	// reject returns the error with which a request fails instead of being sent, or nil. request is nil when
	// a stream is opened.
	reject func(method string, request any) error
	// loseResponse reports whether the response to a request is lost.
	loseResponse func(request any) bool
	// changeTerm and changeTTL return the terms and TTLs that replace those in the responses to keepalives.
	changeTerm func(term uint64) uint64
	changeTTL  func(ttl int64) int64
	// delay is by how long responses to keepalives are delayed, and keepaliveSent is when the newest keepalive
	// was sent.
	delay         time.Duration
	keepaliveSent time.Time
	// minTTL is the shortest TTL, in seconds, for which a lease is granted: a request for less receives minTTL.
	minTTL int64
	// omitLeases removes leases from responses to requests for keys only, as etcd 3.7 does.
	omitLeases bool
}

func (f *faults) set(change func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// interceptRequests makes the requests of a client pass through f.
func (f *faults) interceptRequests(cfg *clientv3.Config) {
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithUnaryInterceptor(f.interceptCall), grpc.WithStreamInterceptor(f.interceptStream))
}

// rejectTxns rejects all transactions, or none if err is nil.
func (f *faults) rejectTxns(err error) {
	f.set(func(f *faults) {
		f.reject = func(_ string, request any) error {
			if _, ok := request.(*etcdserverpb.TxnRequest); ok {
				return err
			}
			return nil
		}
	})
}

func (f *faults) checkRejected(method string, request any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reject == nil {
		return nil
	}
	return f.reject(method, request)
}

func (f *faults) interceptCall(ctx context.Context, method string, request, response any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := f.checkRejected(method, request); err != nil {
		return err
	}
	if grant, ok := request.(*etcdserverpb.LeaseGrantRequest); ok {
		f.set(func(f *faults) { grant.TTL = max(grant.TTL, f.minTTL) })
	}
	err := invoker(ctx, method, request, response, cc, opts...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.omitLeases && err == nil {
		omitLeases(request, response)
	}
	if err == nil && f.loseResponse != nil && f.loseResponse(request) {
		return status.Error(codes.Unavailable, "the response is lost")
	}
	return err
}

func (f *faults) interceptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := f.checkRejected(method, nil); err != nil {
		return nil, err
	}
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &faultyStream{s, f}, nil
}

// faultyStream is a stream whose keepalive responses faults can change.
type faultyStream struct {
	grpc.ClientStream
	faults *faults
}

func (s *faultyStream) SendMsg(m any) error {
	if _, ok := m.(*etcdserverpb.LeaseKeepAliveRequest); ok {
		s.faults.set(func(f *faults) { f.keepaliveSent = time.Now() })
	}
	return s.ClientStream.SendMsg(m)
}

func (s *faultyStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if response, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil {
		s.faults.mu.Lock()
		delay := s.faults.delay
		s.faults.mu.Unlock()
		time.Sleep(delay)
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		if s.faults.changeTerm != nil {
			response.Header.RaftTerm = s.faults.changeTerm(response.Header.RaftTerm)
		}
		if s.faults.changeTTL != nil {
			response.TTL = s.faults.changeTTL(response.TTL)
		}
	}
	return err
}

// isPut reports whether a request is a transaction whose first operation is a put.
func isPut(request any) bool {
	txn, ok := request.(*etcdserverpb.TxnRequest)
	return ok && len(txn.Success) > 0 && txn.Success[0].GetRequestPut() != nil
}

// omitLeases removes the leases from the response to a request for keys only.
func omitLeases(request, response any) {
	omit := func(r *etcdserverpb.RangeRequest, got *etcdserverpb.RangeResponse) {
		if r.GetKeysOnly() && got != nil {
			for _, kv := range got.Kvs {
				kv.Lease = 0
			}
		}
	}
	switch request := request.(type) {
	case *etcdserverpb.RangeRequest:
		omit(request, response.(*etcdserverpb.RangeResponse))
	case *etcdserverpb.TxnRequest:
		got := response.(*etcdserverpb.TxnResponse)
		ops := request.Failure
		if got.Succeeded {
			ops = request.Success
		}
		for i, op := range ops {
			omit(op.GetRequestRange(), got.Responses[i].GetResponseRange())
		}
	}
}
