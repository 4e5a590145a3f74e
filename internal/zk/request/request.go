// Package request sends single requests over a *zk.Conn whose methods take no
// context and may block for as long as the connection is down: it bounds them,
// says which failures are transient, and repeats requests that can be repeated unchanged.
// Callers for which a failure changes what to do next, such as a create whose answer is
// lost, have loops of their own, with Transient and Backoff.
package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Answer is what a request returns.
type Answer[T any] struct {
	Value T
	Err   error
}

// Start sends a request, which may block, from a goroutine of its own and
// returns the channel that gets the answer. The goroutine ends with the
// request, whether or not anybody still reads. f must leave alone all
// variables that its caller may use meanwhile.
func Start[T any](f func() (T, error)) <-chan Answer[T] {
	c := make(chan Answer[T], 1)
	go func() {
		value, err := f()
		c <- Answer[T]{value, err}
	}()
	return c
}

// Do starts f and returns its answer, or the context's cause when that ends
// first. In that case f goes on until the connection answers it: whoever needs
// its effects undone must see to it.
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

// Transient reports whether err says only that the connection failed or the
// server was busy, so that the request may be repeated on the next connection.
// Whether the failed request was carried out is unknown.
func Transient(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer),
		errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired),
		errors.Is(err, zk.ErrClosing): // the owner has closed it: Closed tells
		return true
	}
	switch err.Error() {
	// Codes that the client has no error value for.
	case "unknown error: -4", // connection loss
		"unknown error: -7",   // operation timeout
		"unknown error: -122", // request timeout
		"unknown error: -127": // throttled
		return true
	}
	// A failed write comes back as the socket's own error, or, where the owner
	// has the client dial something else, as a pipe's or a tunnel's.
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF)
}

// Retry is Read for requests that are sent for their effect.
func Retry(ctx context.Context, conn *zk.Conn, f func() error) error {
	_, err := Read(ctx, conn, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Read repeats f, which must be safe to repeat, until it returns anything but
// a transient failure. It ends with the context's cause, wrapping the last
// failure where there was one, or with zkerror.ErrConnClosed.
func Read[T any](ctx context.Context, conn *zk.Conn, f func() (T, error)) (T, error) {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		value, err := Do(ctx, f)
		switch {
		case !Transient(err):
			return value, err
		case Closed(ctx, conn, err):
			return value, zkerror.ErrConnClosed
		case Pause(ctx, pause) != nil:
			return value, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 250 * time.Millisecond
)

// Backoff says how long to pause before a next try, for those who cannot use
// Read: longer each time while failures follow one another, because a server
// that is busy, or has a session at another one, answers at once. It begins anew
// after a time without failure. The zero value is ready to use.
type Backoff struct {
	pause time.Duration
	last  time.Time
}

// Next returns the pause after a failure.
func (b *Backoff) Next() time.Duration {
	now := time.Now()
	if b.pause = min(2*b.pause, pauseMax); now.Sub(b.last) > 2*pauseMax {
		b.pause = pauseMin
	}
	b.last = now
	return b.pause
}

// Pause waits for d, or returns the context's cause when that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Closed reports whether the owner of conn has called its Close, which no
// method of zk.Conn tells. err is the failure that raised the question.
//
// A closed connection answers every request with ErrConnectionClosed at once.
// An open one does so only when a request was under way while its link broke,
// and needs a new dial and handshake before that can happen again: four such
// answers within a millisecond are not to be had from it.
func Closed(ctx context.Context, conn *zk.Conn, err error) bool {
	if errors.Is(err, zk.ErrClosing) {
		return true
	}
	if !errors.Is(err, zk.ErrConnectionClosed) {
		return false
	}
	AwaitClosing(ctx, conn, ClosingTime)
	const probes = 4
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	closed, _ := Do(ctx, func() (bool, error) {
		for range probes {
			if _, _, err := conn.Exists("/"); !errors.Is(err, zk.ErrConnectionClosed) {
				return false, err
			}
		}
		return true, nil
	})
	return closed && time.Since(start) < time.Millisecond
}

// ClosingTime is how long a connection that its owner closes may still look open,
// for those who can wait that long.
const ClosingTime = 20 * time.Millisecond

// AwaitClosing waits for a moment for a connection to go down, where there is reason
// to think that its owner is closing it. A request that is sent meanwhile can
// hang the client library: one that was queued at the time of Close, could not
// be written, and was pending gets three answers, over a channel for two.
func AwaitClosing(ctx context.Context, conn *zk.Conn, limit time.Duration) {
	const interval = time.Millisecond
	for end := time.Now().Add(limit); conn.State() == zk.StateHasSession && time.Now().Before(end); {
		if Pause(ctx, interval) != nil {
			return
		}
	}
}
