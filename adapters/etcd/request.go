package etcd

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

const (
	// retryPause is the time between two attempts.
	retryPause = 100 * time.Millisecond
	// requestLimit is the maximum duration of an attempt. The next attempt may use another server.
	requestLimit = 4 * time.Second
)

// retry calls f, each time for at most limit, until it succeeds, ctx is done, its error is
// permanent, or the client is closed. Requests require that their server has a leader, so a server
// that is cut off from the others returns an error immediately.
//
// This loop is not that of internal/zk/request, which sends requests to ZooKeeper, because other
// errors are permanent here. It does not rely on the retries of etcd's client either. The client
// retries only some requests, waits for a server that does not respond although it could use
// another, and continues after it was closed, until the context of the request is done.
func retry(ctx context.Context, client *clientv3.Client, limit time.Duration, f func(ctx context.Context) error) error {
	for client.Ctx().Err() == nil {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), min(limit, requestLimit))
		stop := context.AfterFunc(client.Ctx(), cancel)
		err := f(attempt)
		stop()
		cancel()
		switch {
		case err == nil:
			return nil
		case client.Ctx().Err() != nil:
			return errClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case permanent(err) != nil:
			return permanent(err)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return errExpired
		}
		if err := request.Pause(ctx, retryPause); err != nil {
			return err
		}
	}
	return errClosed
}

// retryWithinTimeout retries f within a session timeout and the context of the options.
func (o *options) retryWithinTimeout(client *clientv3.Client, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.ctx, o.timeout, errUnreachable)
	defer cancel()
	return retry(ctx, client, o.timeout/2, f)
}

// keepaliveStream sends the keepalives of a lease over one stream. It opens the stream when it is
// needed, and again after an error. etcd's client authenticates for each stream, which costs the
// servers the verification of a password and a proposal.
//
// A keepalive is sent when the previous one was answered, or has failed together with its stream. So
// a response always belongs to the newest keepalive, and when that was sent is known.
//
// The client's KeepAlive is not suitable, because it does not report when a keepalive was sent, and
// KeepAliveOnce is not either, because it opens a stream for each keepalive.
type keepaliveStream struct {
	ctx    context.Context
	client *clientv3.Client
	lease  clientv3.LeaseID

	stream etcdserverpb.Lease_LeaseKeepAliveClient // stream is nil before it is opened.
	cancel context.CancelCauseFunc
}

// send sends one keepalive, and waits for the response for at most limit. The ttl of the result is 0
// if the server does not know the lease.
func (s *keepaliveStream) send(limit time.Duration) (r keepaliveResult) {
	defer func() {
		if r.err != nil {
			s.close()
		}
	}()
	if r.err = s.open(); r.err != nil {
		return r
	}
	timer := time.AfterFunc(limit, func() { s.cancel(errNoAnswer) })
	defer timer.Stop()
	r.keepalive.sent = time.Now()
	if err := s.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil && !errors.Is(err, io.EOF) {
		r.err = s.reason(err)
		return r
	} // After EOF, Recv returns the reason.
	response, err := s.stream.Recv()
	if err != nil {
		r.err = s.reason(err)
		return r
	}
	r.took = time.Since(r.keepalive.sent)
	r.keepalive.term, r.ttl = response.GetHeader().GetRaftTerm(), time.Duration(response.TTL)*time.Second
	return r
}

// open opens the stream if it is not open.
func (s *keepaliveStream) open() (err error) {
	if s.stream != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(s.ctx))
	s.cancel = cancel
	timer := time.AfterFunc(requestLimit, func() { cancel(errNoAnswer) })
	defer timer.Stop()
	if s.stream, err = etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx); err != nil {
		s.stream = nil
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return clientv3.ContextError(ctx, err)
	}
	return nil
}

// reason returns the reason for which the stream has failed with err.
func (s *keepaliveStream) reason(err error) error {
	if cause := context.Cause(s.stream.Context()); cause != nil {
		return cause
	}
	return clientv3.ContextError(s.ctx, err)
}

// close closes the stream if it is open.
func (s *keepaliveStream) close() {
	if s.cancel != nil {
		s.cancel(nil)
		s.stream, s.cancel = nil, nil
	}
}

// leaseExists reports whether a lease exists.
func leaseExists(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) (bool, error) {
	got, err := client.TimeToLive(ctx, lease)
	return err == nil && got.TTL > 0, err
}
