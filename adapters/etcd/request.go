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

// sendKeepalive sends one keepalive. ttl is 0 if the server does not know the lease.
//
// The client's KeepAliveOnce is not suitable: it retries a request that fails without a pause,
// until its context is done.
func sendKeepalive(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) (ttl time.Duration, term uint64, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // ends the stream
	stream, err := etcdserverpb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, clientv3.ContextError(ctx, err)
	} // After EOF, Recv returns the reason.
	response, err := stream.Recv()
	if err != nil {
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	return time.Duration(response.TTL) * time.Second, response.GetHeader().GetRaftTerm(), nil
}

// leaseExists reports whether a lease exists.
func leaseExists(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) (bool, error) {
	got, err := client.TimeToLive(ctx, lease)
	return err == nil && got.TTL > 0, err
}
