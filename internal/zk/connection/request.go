package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
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

// InFlight is how many requests are sent at the same time for a long list, which would otherwise take as
// many round trips as it has elements.
const InFlight = 64

// Each calls f for each name and its index, for up to n of them at the same time, and returns the results in
// the order of names. After a call has failed, Each starts no other, and returns the error.
func Each[T any](names []string, n int, f func(i int, name string) (T, error)) ([]T, error) {
	results, errs := make([]T, len(names)), make([]error, len(names))
	var failed atomic.Bool
	var calls sync.WaitGroup
	turns := make(chan struct{}, n)
	for i, name := range names {
		if turns <- struct{}{}; failed.Load() {
			break
		}
		calls.Go(func() {
			defer func() { <-turns }()
			if results[i], errs[i] = f(i, name); errs[i] != nil {
				failed.Store(true)
			}
		})
	}
	calls.Wait()
	return results, cmp.Or(errs...)
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

// Get is conn.Get, but it returns ErrTooLarge, with the Stat, instead of sending a request
// whose reply is known to break the connection. At least one request must have failed before that
// is known: its error is zk.ErrConnectionClosed, and the caller retries as after any transient
// failure. If the znode has changed since, the request is sent again. The other functions do the
// same. They may be called from any goroutine.
//
// If the connection has no right to read the znode, Get also returns the Stat, so that callers can
// handle both as a property of this znode; see IsUnreadable.
func Get(conn *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	data, stat, _, err := read(conn, part{path, false}, func() ([]byte, *zk.Stat, <-chan zk.Event, error) {
		data, stat, err := conn.Get(path)
		return data, stat, nil, err
	})
	if errors.Is(err, zk.ErrNoAuth) {
		return withStat(err, func() (bool, *zk.Stat, error) { return conn.Exists(path) })
	}
	return data, stat, err
}

// IsUnreadable reports whether err is an error with which Get returns the Stat: the znode exists, but
// this connection cannot read its data.
func IsUnreadable(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, zk.ErrNoAuth)
}

// withStat returns err with the Stat that exists returns, or the error of exists.
func withStat(err error, exists func() (bool, *zk.Stat, error)) ([]byte, *zk.Stat, error) {
	found, stat, failed := exists()
	switch {
	case failed != nil:
		return nil, nil, failed
	case !found:
		return nil, nil, zk.ErrNoNode
	}
	return nil, stat, err
}

// GetW is conn.GetW. With ErrTooLarge it also returns the Stat and a watch, and with
// zk.ErrNoAuth the Stat: servers since 3.8.4 send no events of a znode to a client that must not read
// it.
func GetW(conn *zk.Conn, path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	data, stat, watch, err := read(conn, part{path, false}, func() ([]byte, *zk.Stat, <-chan zk.Event, error) { return conn.GetW(path) })
	switch {
	case errors.Is(err, ErrTooLarge):
		data, stat, err = withStat(err, func() (exists bool, stat *zk.Stat, failed error) {
			exists, stat, watch, failed = conn.ExistsW(path)
			return exists, stat, failed
		})
	case errors.Is(err, zk.ErrNoAuth):
		data, stat, err = withStat(err, func() (bool, *zk.Stat, error) { return conn.Exists(path) })
	}
	return data, stat, watch, err
}

// Children lists the children of path like conn.Children, and recognizes a reply that is too large.
func Children(conn *zk.Conn, path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) {
		names, stat, err := conn.Children(path)
		return names, stat, nil, err
	})
	return names, stat, err
}

// List returns the names of the children of path. It sends the request again as Read does.
func List(ctx context.Context, conn *zk.Conn, path string) ([]string, error) {
	return Read(ctx, conn, func() ([]string, error) {
		names, _, err := Children(conn, path)
		return names, err
	})
}

// ChildrenW is conn.ChildrenW. With ErrTooLarge no watch is set.
func ChildrenW(conn *zk.Conn, path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	return read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) { return conn.ChildrenW(path) })
}

// part is the part of a znode that a reply contains.
type part struct {
	path     string
	children bool // the list of children instead of the data
}

func (p part) String() string {
	if p.children {
		return "list of children of " + p.path
	}
	return "data of " + p.path
}

// suspicion counts the failures of requests for a part, if the last one has failed with the
// connection.
type suspicion struct {
	breaks  int   // consecutive failures
	refused int64 // the zxid of the state that is known to be too large, or 0
}

// suspicions are the replies of one connection that are suspected of being too large to be received.
type suspicions struct {
	limit int // of the size of a reply, or noLimit

	mu    sync.Mutex
	parts map[part]suspicion
	// alone, of capacity 1, holds an element while a request that may have broken the connection
	// is retried, so that its failure is not attributed to another such request.
	alone chan struct{}
}

var suspected = NewMap(func(conn *zk.Conn) *suspicions {
	return &suspicions{limit: limitOf(conn), parts: map[part]suspicion{}, alone: make(chan struct{}, 1)}
})

const (
	noLimit      = 0
	maxSuspected = 4096 // parts of one connection
)

// noReply is larger than any reply: the servers accept requests of a megabyte by default, and the clients of
// ZooKeeper and kazoo replies of a megabyte.
const noReply = 64 << 20

// limitOf returns the size of the largest reply that the connection accepts, or noLimit if that is not less
// than noReply, as with package zkdial by default. The client library does not export it: tests fail with a
// release that has no such field.
func limitOf(conn *zk.Conn) int {
	field := reflect.ValueOf(conn).Elem().FieldByName("maxBufferSize")
	if !field.IsValid() || !field.CanInt() || field.Int() >= noReply {
		return noLimit
	}
	return max(int(field.Int()), noLimit)
}

func read[T any](conn *zk.Conn, p part, send func() (T, *zk.Stat, <-chan zk.Event, error)) (T, *zk.Stat, <-chan zk.Event, error) {
	s := suspected.Of(conn)
	if s.limit == noLimit {
		return send()
	}
	s.mu.Lock()
	before, known := s.parts[p]
	s.mu.Unlock()
	if known {
		var none T
		exists, stat, err := conn.Exists(p.path)
		if err != nil {
			return none, nil, nil, err
		}
		if exists {
			var refused error
			if before, refused = s.judge(p, before, stat); refused != nil {
				return none, stat, nil, refused
			}
		}
		s.alone <- struct{}{}
		defer func() { <-s.alone }()
	}
	value, stat, watch, err := send()
	s.note(p, before.breaks, err)
	return value, stat, watch, err
}

// note records the outcome of a request for a part. breaks is the number of failures when it was
// sent: requests that were in progress together count as one failure.
func (s *suspicions) note(p part, breaks int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch x, known := s.parts[p]; {
	case errors.Is(err, zk.ErrConnectionClosed):
		if len(s.parts) >= maxSuspected {
			clear(s.parts)
		}
		x.breaks = max(x.breaks, breaks+1)
		s.parts[p] = x
	case known && !Transient(err):
		delete(s.parts, p)
	}
}

// judge returns an error if a part, given the Stat of its znode, must not be requested again.
func (s *suspicions) judge(p part, x suspicion, stat *zk.Stat) (suspicion, error) {
	zxid, size, enough := stat.Mzxid, replySize(stat, p.children), breaksIfPossible
	if p.children {
		zxid = stat.Pzxid
	}
	certain := size > s.limit
	switch {
	case certain:
	case !p.children:
		enough = never
	case int(stat.NumChildren)*longName < s.limit:
		enough = breaksIfUnlikely
	}
	if x.refused != 0 && x.refused != zxid {
		x = suspicion{breaks: min(enough, breaksIfPossible) - 1} // the znode has changed: request it again
	}
	refuse := certain || x.refused == zxid || x.breaks >= enough
	if refuse {
		x.refused = zxid
	}
	s.mu.Lock()
	s.parts[p] = x
	s.mu.Unlock()
	if !refuse {
		return x, nil
	}
	return x, fmt.Errorf("%w: the %s (%d bytes of data, %d children) exceeds the connection's receive buffer; connect with a larger zk.WithMaxBufferSize",
		ErrTooLarge, p, stat.DataLength, stat.NumChildren)
}

// The number of failures after which a list, whose size is unknown, is considered too large, if it may
// exceed the limit, and if that is unlikely. A request can also fail because the reply to another request
// breaks the connection.
const (
	breaksIfPossible = 4
	breaksIfUnlikely = 16
	never            = 1 << 30
)

// longName is the length of a long name with its header.
const longName = 256

// replySize returns the size of a reply. For a list of children it is a lower bound.
func replySize(stat *zk.Stat, children bool) int {
	const header, length, statSize, shortName = 16, 4, 68, 4 + 1
	if children {
		return header + length + int(stat.NumChildren)*shortName + statSize
	}
	return header + length + int(stat.DataLength) + statSize
}
