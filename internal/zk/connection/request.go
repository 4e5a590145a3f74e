package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
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

// Retry is Read for requests that are sent for their effect.
func Retry(ctx context.Context, conn *zk.Conn, f func() error) error {
	_, err := Read(ctx, conn, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Read calls f, which must be safe to repeat, until it returns no transient
// failure. If the context is done, Read returns its cause, which wraps the last
// failure if there was one. If the owner closes the connection, it returns
// ErrConnClosed.
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
	for rejected := true; rejected; rejected = IsRejection(f()) {
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
// ErrConnClosed if the owner of conn has called Close; or an answer that the server gives to
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
		return ErrConnClosed
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
			return struct{}{}, ErrConnClosed
		}
		return struct{}{}, nil
	})
	switch {
	case errors.Is(answer, ErrConnClosed):
		return answer
	case CodeOf(answer) == nil, Transient(answer), errors.Is(answer, zk.ErrNoAuth): // the ACL of the root
		return nil
	}
	return Reject(ctx, conn, answer)
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
