package etcd_test

// Faults at one request, made between the client library and gRPC.

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
)

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

// isPut reports whether a request is a transaction that puts.
func isPut(req any) bool {
	txn, ok := req.(*etcdserverpb.TxnRequest)
	return ok && len(txn.Success) > 0 && txn.Success[0].GetRequestPut() != nil
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

// ends waits for the end of a leadership.
func ends(t *testing.T, l *leaderelection.Leadership) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(5 * ttl):
		t.Fatal("the leadership does not end")
	}
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
