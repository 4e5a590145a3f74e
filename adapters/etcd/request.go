package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

const (
	// retryPause is the time between two attempts.
	retryPause = 100 * time.Millisecond
	// requestLimit is the maximum duration of an attempt. The next attempt may use another server.
	requestLimit = 4 * time.Second
	// explainLimit is the maximum duration of the search for the reason of a failed attempt.
	explainLimit = 500 * time.Millisecond
)

// rejectedPause is the time between two attempts if etcd rejects a request until an operator changes
// something. The pause is long, because the server may verify a password for each attempt.
const rejectedPause = time.Second

// retrier repeats a request that fails.
//
// It does not rely on the retries of etcd's client, because the client retries only some requests,
// waits for a server that does not respond although it could use another, and continues after it was
// closed, until the context of the request is done.
type retrier struct {
	client *clientv3.Client
	limit  time.Duration // limit is the maximum duration of an attempt.
	// patient means that a request is repeated although etcd has rejected it: permissions and
	// passwords can be corrected.
	patient bool
	log     *outageLog // log reports failed attempts. It may be nil.
}

// retry calls f until it succeeds, ctx is done, the error of f is permanent, or the client is closed. Each call
// takes limit at most.
func retry(ctx context.Context, client *clientv3.Client, limit time.Duration, f func(ctx context.Context) error) error {
	return retrier{client: client, limit: limit}.run(ctx, f)
}

// run calls f until it succeeds, ctx is done, its error is permanent, or the client is closed. Requests
// require that their server has a leader, so a server that is cut off from the others returns an error
// immediately.
func (r retrier) run(ctx context.Context, f func(ctx context.Context) error) error {
	for last := error(nil); r.client.Ctx().Err() == nil; {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), min(r.limit, requestLimit))
		stop := context.AfterFunc(r.client.Ctx(), cancel)
		start := time.Now()
		err := f(attempt)
		stop()
		cancel()
		switch {
		case err == nil:
			r.log.recordSuccess()
			return nil
		case r.client.Ctx().Err() != nil:
			return errClosed
		case errors.As(err, new(*permanentError)):
			return permanentCause(err)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return errExpired
		}
		rejected := permanentCause(err)
		if rejected != nil && !r.patient {
			return rejected
		}
		probe := ctx
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			probe = r.client.Ctx()
		}
		if err = explain(probe, r.client, err); !errors.Is(err, errNoAnswer) || last == nil {
			last = err
		}
		if ctx.Err() != nil {
			return unreachableError(r.client, context.Cause(ctx), last)
		}
		r.log.recordFailure(start, last)
		pause := retryPause
		if rejected != nil {
			pause = rejectedPause
		}
		if err := limit.Pause(ctx, pause); err != nil {
			return unreachableError(r.client, err, last)
		}
	}
	return errClosed
}

// retryWithinTimeout repeats f until it succeeds or fails permanently, but no longer than a session timeout and
// the context of the options allow.
func (o *options) retryWithinTimeout(client *clientv3.Client, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.ctx, o.timeout, errUnreachable)
	defer cancel()
	return retry(ctx, client, o.timeout/2, f)
}

// unreachableError returns the error of a request that was not executed before its context was done. cause is the
// context's cause, and last is the error of the last attempt.
func unreachableError(client *clientv3.Client, cause, last error) error {
	endpoints := strings.Join(client.Endpoints(), ", ")
	switch {
	case cause != errUnreachable:
		return fmt.Errorf("%w: etcd at %s: %w", cause, endpoints, last)
	case last == errNoAnswer:
		return withText(cause, "etcd at "+endpoints+" does not answer")
	}
	return fmt.Errorf("%w: %w", withText(cause, "etcd at "+endpoints+" has not executed the request"), last)
}

// explain returns the reason of a failed attempt. If a server cannot be reached, etcd's client repeats
// requests until their context is done, and returns only the error of the context. explain then sends
// another request, which the client does not repeat, to find the reason.
func explain(ctx context.Context, client *clientv3.Client, err error) error {
	if isContextError(err) {
		ctx, cancel := context.WithTimeout(ctx, explainLimit)
		defer cancel()
		var got *etcdserverpb.StatusResponse
		got, err = etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
		switch {
		case err == nil && len(got.Errors) > 0:
			return withText(errNoAnswer, "no answer, but the server reports "+strings.TrimSpace(strings.Join(got.Errors, "; ")))
		case err == nil, isContextError(err):
			return errNoAnswer
		}
	}
	return withoutCode(err)
}

// withoutCode removes gRPC's code from the text of an error that reports an unavailable server.
func withoutCode(err error) error {
	if s, ok := status.FromError(err); ok && errorCode(err) == codes.Unavailable {
		return withText(err, s.Message())
	}
	return err
}

// isContextError reports whether a request has failed because its context was done.
func isContextError(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	code := errorCode(err)
	return code == codes.DeadlineExceeded || code == codes.Canceled
}

// keepaliveStream sends the keepalives of a lease over one stream. It opens the stream for the first keepalive,
// and again after an error, but not for each keepalive: etcd's client authenticates for each stream, for which
// the servers verify a password and commit a proposal.
//
// A keepalive is sent only after the previous one was answered, or has failed together with its stream. So a
// response always belongs to the newest keepalive, and it is known when that was sent.
//
// The client's methods are not suitable: KeepAlive does not report when a keepalive was sent, and KeepAliveOnce
// opens a stream for each keepalive.
type keepaliveStream struct {
	ctx    context.Context
	client *clientv3.Client
	lease  clientv3.LeaseID

	stream etcdserverpb.Lease_LeaseKeepAliveClient // stream is nil before it is opened.
	opened context.Context                         // opened is the context with which stream was opened.
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
	cancel := s.cancel // copy the field, because close may set it while the function of the timer runs
	timer := time.AfterFunc(limit, func() { cancel(errNoAnswer) })
	defer timer.Stop()
	r.keepalive.sent = time.Now()
	if err := s.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil && !errors.Is(err, io.EOF) {
		r.err = s.reason(err)
		return r
	} // EOF of Send means only that the stream has ended. Recv returns the reason.
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
	s.opened, s.cancel = ctx, cancel
	timer := time.AfterFunc(requestLimit, func() { cancel(errNoAnswer) })
	defer timer.Stop()
	if s.stream, err = etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(s.opened); err != nil {
		s.stream = nil
		return s.reason(err)
	}
	return nil
}

// reason returns the reason why the stream was not opened, or has failed, with err.
func (s *keepaliveStream) reason(err error) error {
	if cause := context.Cause(s.opened); cause != nil {
		return cause
	}
	return withoutCode(clientv3.ContextError(s.opened, err))
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
