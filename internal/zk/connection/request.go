package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Answer is the result of a request.
type Answer[T any] struct {
	Value T
	Err   error
}

// Start calls f, which sends a request and may block, in a new goroutine. It
// returns a channel that receives the result. The goroutine ends when f returns,
// even if the result is not received. f must not use variables that its caller may
// use concurrently.
func Start[T any](f func() (T, error)) <-chan Answer[T] {
	c := make(chan Answer[T], 1)
	go func() {
		value, err := f()
		c <- Answer[T]{value, err}
	}()
	return c
}

// Do calls f and returns its result, or the cause of the context if that is done
// first. In that case f continues until the connection answers, and its effects may
// have to be undone by the caller.
func Do[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var none T
	if err := context.Cause(ctx); err != nil {
		return none, err
	}
	select {
	case a := <-Start(f):
		return a.Value, a.Err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// Transient reports whether err only means that the connection failed or that the
// server was busy, so that the request may be retried on the next connection. It is
// unknown whether the failed request was applied.
func Transient(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer):
		return true
	}
	if code := zkerror.CodeOf(err); code != nil {
		return code.Class == zkerror.Transient
	}
	// A failed write returns the error of the socket, or of a pipe or a tunnel if the owner of the
	// connection uses such a dialer.
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF)
}

// Retry is Read for requests that are sent for their effect.
func Retry(ctx context.Context, conn *zk.Conn, f func() error) error {
	_, err := Read(ctx, conn, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Read calls f, which must be safe to repeat, until it returns no transient
// failure. If the context is done, Read returns its cause, which wraps the last
// failure if there was one. If the owner closes the connection, it returns
// zkerror.ErrConnClosed.
func Read[T any](ctx context.Context, conn *zk.Conn, f func() (T, error)) (T, error) {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		value, err := Do(ctx, f)
		if err == nil {
			return value, nil
		}
		if final := Final(ctx, conn, err); final != nil {
			return value, final
		}
		if limit.Pause(ctx, pause) != nil {
			return value, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 250 * time.Millisecond
)

// MaxRejectionPause limits the pause before a request is sent again that the servers have rejected.
const MaxRejectionPause = 5 * time.Second

// Insist calls f after pauses, which grow, until the servers do not reject the request. It is for
// the removal of a znode that others wait for, in the background.
func Insist(f func() error) {
	backoff := Backoff{Max: MaxRejectionPause}
	for rejected := true; rejected; rejected = zkerror.IsRejection(f()) {
		_ = limit.Pause(context.Background(), backoff.Next())
	}
}

// Backoff determines the pauses between retries, for callers that cannot use Read.
// The pause grows with each failure, because a server that is busy, or from which
// the session has moved, answers immediately. It is reset after some time without
// failures. The zero value is ready to use.
type Backoff struct {
	Max   time.Duration // the longest pause; 0 means 250 ms
	pause time.Duration
	last  time.Time
}

// Next returns the pause after a failure.
func (b *Backoff) Next() time.Duration {
	now, longest := time.Now(), b.Max
	if longest == 0 {
		longest = pauseMax
	}
	if b.pause = min(2*b.pause, longest); now.Sub(b.last) > 2*longest {
		b.pause = pauseMin
	}
	b.last = now
	return b.pause
}

// Final returns the error with which a request ends whose failure is err, or nil if it may be sent
// again: err itself if it is not transient, with the server that has rejected the request;
// zkerror.ErrConnClosed if the owner of conn has called Close; or an answer that the server gives to
// all requests of the connection. It blocks while the connection is down, until ctx is done.
//
// zk.Conn has no method that reports Close, so Final sends further requests. A closed connection
// answers every request immediately with ErrConnectionClosed. An open connection does so only if it
// breaks while a request is in flight, and needs a new dial and handshake before that can happen
// again, so it cannot give four such answers within a millisecond.
//
// These requests may be the first of the next connection. A server that serves only authenticated
// connections answers the first request with the reason and then closes the connection, so that the
// request that is sent again would only see the connection break. Therefore their answer counts.
func Final(ctx context.Context, conn *zk.Conn, err error) error {
	switch {
	case !Transient(err):
		return Reject(ctx, conn, err)
	case errors.Is(err, zk.ErrClosing):
		return zkerror.ErrConnClosed
	case !errors.Is(err, zk.ErrConnectionClosed):
		return nil
	}
	AwaitClosing(ctx, conn, ClosingTime)
	const probes = 4
	_, answer := Do(ctx, func() (struct{}, error) {
		var first time.Time
		for i := range probes {
			if _, _, err := conn.Exists("/"); !errors.Is(err, zk.ErrConnectionClosed) {
				return struct{}{}, err
			}
			if i == 0 {
				first = time.Now()
			}
		}
		if time.Since(first) < time.Millisecond {
			return struct{}{}, zkerror.ErrConnClosed
		}
		return struct{}{}, nil
	})
	switch {
	case errors.Is(answer, zkerror.ErrConnClosed):
		return answer
	case zkerror.CodeOf(answer) == nil, Transient(answer), errors.Is(answer, zk.ErrNoAuth): // the ACL of the root
		return nil
	}
	return Reject(ctx, conn, answer)
}

// Reject returns err with the server that conn uses if it is an answer that ends an operation, and
// otherwise err.
func Reject(ctx context.Context, conn *zk.Conn, err error) error {
	return zkerror.Reject(err, func() string { return server(ctx, conn) })
}

// Refine is zkerror.Refine, with the server that conn uses if err is an answer of it.
func Refine(conn *zk.Conn, err error) error {
	return zkerror.Refine(Reject(context.Background(), conn, err))
}

// server returns the address of the server that conn uses, or "" if it is not known. While the
// connection is down, the client library holds the lock that Server needs until it has the next
// address, which may be a DNS lookup that blocks.
func server(ctx context.Context, conn *zk.Conn) string {
	ctx, cancel := context.WithTimeout(ctx, ClosingTime)
	defer cancel()
	address, _ := Do(ctx, func() (string, error) { return conn.Server(), nil })
	return address
}

// ClosingTime is how long a connection that its owner closes may still appear to be open. It is
// for callers that can wait that long.
const ClosingTime = 20 * time.Millisecond

// AwaitClosing waits up to d until a connection is down. It is called if the
// owner may be closing the connection. A request that is sent in the meantime can
// block the client library forever: a request that was queued at the time of Close,
// could not be written and was pending receives three answers on a channel with
// capacity two.
func AwaitClosing(ctx context.Context, conn *zk.Conn, d time.Duration) {
	const interval = time.Millisecond
	for end := time.Now().Add(d); conn.State() == zk.StateHasSession && time.Now().Before(end); {
		if limit.Pause(ctx, interval) != nil {
			return
		}
	}
}

// Explain returns err, with which an operation on conn has ended, with the reason why conn has no
// session, or the server that has not answered. It adds ErrHangs to zkerror.ErrConnClosed if
// that is the reason. It returns err unchanged if err is an answer of a server, or does not depend on
// the connection, or if conn is nil.
func Explain(conn *zk.Conn, err error) error {
	switch {
	case err == nil || conn == nil:
		return err
	case errors.Is(err, zkerror.ErrConnClosed):
		reason := RecordOf(conn).Facts().Failure
		if errors.Is(reason, ErrHangs) && !errors.Is(err, ErrHangs) {
			return fmt.Errorf("%w: %w", err, reason)
		}
		return err
	case zkerror.CodeOf(err) != nil || errors.Is(err, zkerror.ErrInvalid):
		return err
	}
	if conn.State() != zk.StateHasSession {
		if failure := RecordOf(conn).Facts().Failure; failure != nil {
			return fmt.Errorf("%w (%v)", err, failure) // not wrapped: it is not the failure of a request
		}
		if !errors.Is(err, zk.ErrNoServer) { // it says the same
			err = fmt.Errorf("%w (the connection has no session)", err)
		}
		return err
	}
	if errors.Is(err, zkerror.ErrUnreachable) {
		if address := server(context.Background(), conn); address != "" {
			return fmt.Errorf("%w (%s)", err, address)
		}
	}
	return err
}
