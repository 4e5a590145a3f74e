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

// Start calls f, which sends a request and may block, in a new goroutine, which ends when f returns. The channel
// receives the result. f must not use variables that the caller of Start may use at the same time.
func Start[T any](f func() (T, error)) <-chan Answer[T] {
	c := make(chan Answer[T], 1)
	go func() {
		value, err := f()
		c <- Answer[T]{value, err}
	}()
	return c
}

// Do calls f and returns its result, or the cause of the context if the context is done first. In the second case f
// continues until the connection answers, and the caller may have to undo the effects of f.
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

// InFlight is the number of requests that are sent at the same time for a long list of znodes.
const InFlight = 64

// Each calls f for each name and its index, up to n calls at the same time, and returns the results in the order of
// names. After a failure Each starts no other call, and returns the error.
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

// Retry is like Read, for requests that return only an error.
func Retry(ctx context.Context, conn *zk.Conn, f func() error) error {
	_, err := Read(ctx, conn, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Read calls f, which must be safe to repeat, until f returns no transient failure. If the context is done, Read
// returns the cause of the context, which wraps the last failure; if the owner closes the connection, it returns
// ErrConnClosed.
func Read[T any](ctx context.Context, conn *zk.Conn, f func() (T, error)) (T, error) {
	var backoff Backoff
	for {
		value, err := Do(ctx, f)
		if err == nil {
			return value, nil
		}
		if err := backoff.AwaitRetry(ctx, conn, err); err != nil {
			return value, err
		}
	}
}

// MaxRejectionPause limits the pause before a rejected request is sent again.
const MaxRejectionPause = 5 * time.Second

// Insist calls f, which sends a request, with growing pauses until the servers do not reject the request. It is for
// the removal, in the background, of a znode that other clients wait for.
func Insist(f func() error) {
	backoff := Backoff{Max: MaxRejectionPause}
	for rejected := true; rejected; rejected = IsRejection(f()) {
		_ = limit.Pause(context.Background(), backoff.Next())
	}
}

// Backoff determines the pauses between retries, for callers that cannot use Read. The pause grows with each
// failure, because a busy server answers immediately. After some time without failures the pauses are short again.
type Backoff struct {
	Max   time.Duration // the longest pause; 0 means 250 ms
	pause time.Duration
	last  time.Time
}

// Next returns how long to pause after a failure.
func (b *Backoff) Next() time.Duration {
	now, longest := time.Now(), cmp.Or(b.Max, 250*time.Millisecond)
	if b.pause = min(2*b.pause, longest); now.Sub(b.last) > 2*longest {
		b.pause = 5 * time.Millisecond
	}
	b.last = now
	return b.pause
}

// AwaitRetry pauses after a request has failed, and returns nil. If the request must not be repeated, AwaitRetry
// returns the error of Final. If ctx is done first, AwaitRetry returns an error that wraps the cause of ctx and the
// failure.
func (b *Backoff) AwaitRetry(ctx context.Context, conn *zk.Conn, failure error) error {
	if final := Final(ctx, conn, failure); final != nil {
		return final
	}
	if limit.Pause(ctx, b.Next()) != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), failure)
	}
	return nil
}

// Final returns nil if a request that has failed with err may be repeated. Otherwise it returns the error with
// which the operation ends: err with the server if err is not transient; ErrConnClosed if the owner of conn has
// called Close; or the answer of a server that answers all requests alike. Final blocks while the connection is
// down, until ctx is done.
//
// zk.Conn has no method that reports Close, so Final sends further requests, the probes. A closed connection
// answers each probe immediately with ErrConnectionClosed. An open connection does so only if it breaks while a
// probe is in flight, and then needs a new handshake, so it cannot do so four times within a millisecond.
//
// A server that serves only authenticated connections answers the first request of a connection with the reason and
// then closes the connection, so that a repeated request would only notice the break. Therefore Final also
// evaluates the answers to the probes.
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
	// With ErrNoAuth, the ACL of the root has denied the probe.
	case CodeOf(answer) == nil, Transient(answer), errors.Is(answer, zk.ErrNoAuth):
		return nil
	}
	return Reject(ctx, conn, answer)
}

// ClosingTime is how long a connection that its owner closes may appear to be open. Callers that can wait pass it
// to AwaitClosing.
const ClosingTime = 20 * time.Millisecond

// AwaitClosing waits up to d until a connection is down, because the owner may be closing it. A request that is sent
// while the owner closes the connection can block the client library forever: the library may send three answers to
// such a request, to a channel with capacity two.
func AwaitClosing(ctx context.Context, conn *zk.Conn, d time.Duration) {
	const interval = time.Millisecond
	for end := time.Now().Add(d); conn.State() == zk.StateHasSession && time.Now().Before(end); {
		if limit.Pause(ctx, interval) != nil {
			return
		}
	}
}

// Get is like conn.Get. But if the reply is known to break the connection because of its size, Get returns
// ErrTooLarge with the Stat instead of sending the request. The size is known after at least one request has failed
// with zk.ErrConnectionClosed and the caller has repeated the request. If the znode has changed since, Get sends
// the request again. GetW, Children and ChildrenW do the same. All four may be called from any goroutine.
//
// Get also returns the Stat if the connection must not read the znode; see IsUnreadable.
func Get(conn *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	data, stat, _, err := GetW(conn, path, false)
	return data, stat, err
}

// IsUnreadable reports whether err means that the znode exists, but that this connection cannot read its data.
func IsUnreadable(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, zk.ErrNoAuth)
}

// GetW is like conn.GetW, or conn.Get if watched is false. With ErrTooLarge it also returns the Stat and a watch.
// With zk.ErrNoAuth it also returns the Stat, but no watch: servers since 3.8.4 send no events of a znode to a
// client that must not read the znode.
func GetW(conn *zk.Conn, path string, watched bool) (data []byte, stat *zk.Stat, watch <-chan zk.Event, err error) {
	data, stat, watch, err = read(conn, part{path, false}, func() (data []byte, stat *zk.Stat, watch <-chan zk.Event, err error) {
		if watched {
			return conn.GetW(path)
		}
		data, stat, err = conn.Get(path)
		return data, stat, nil, err
	})
	unreadable, exists := err, false
	switch {
	case errors.Is(unreadable, ErrTooLarge) && watched:
		exists, stat, watch, err = conn.ExistsW(path)
	case errors.Is(unreadable, zk.ErrNoAuth):
		exists, stat, err = conn.Exists(path)
	default:
		return data, stat, watch, err
	}
	switch {
	case err != nil:
		return nil, nil, watch, err
	case !exists:
		return nil, nil, watch, zk.ErrNoNode
	}
	return nil, stat, watch, unreadable
}

// ReadData is like Get, and repeats the request as Read does. The Stat is nil unless the servers have returned it,
// so the Stat distinguishes an error of IsUnreadable from a cause of the context that wraps the same error.
func ReadData(ctx context.Context, conn *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	type content struct {
		data       []byte
		stat       *zk.Stat
		unreadable error
	}
	c, err := Read(ctx, conn, func() (content, error) {
		data, stat, err := Get(conn, path)
		if err != nil && !IsUnreadable(err) {
			return content{}, err
		}
		return content{data, stat, err}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return c.data, c.stat, c.unreadable
}

// ReadExisting is like ReadData, and returns a nil Stat and no error if the znode does not exist.
func ReadExisting(ctx context.Context, conn *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	data, stat, err := ReadData(ctx, conn, path)
	if IsNoNode(ctx, err) {
		err = nil
	}
	return data, stat, err
}

// ReadStat returns the Stat of a znode, which is empty if the znode does not exist. ReadStat repeats the request as
// Read does.
func ReadStat(ctx context.Context, conn *zk.Conn, path string) (*zk.Stat, error) {
	return Read(ctx, conn, func() (*zk.Stat, error) {
		_, stat, err := conn.Exists(path)
		return stat, err
	})
}

// Children lists the children of path like conn.Children, and returns ErrTooLarge for a reply that is too large, as
// Get does.
func Children(conn *zk.Conn, path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := ChildrenW(conn, path, false)
	return names, stat, err
}

// List returns the names of the children of path. It repeats the request as Read does.
func List(ctx context.Context, conn *zk.Conn, path string) ([]string, error) {
	return Read(ctx, conn, func() ([]string, error) {
		names, _, err := Children(conn, path)
		return names, err
	})
}

// ListExisting is like List, and returns no names if the znode does not exist.
func ListExisting(ctx context.Context, conn *zk.Conn, path string) ([]string, error) {
	names, err := List(ctx, conn, path)
	if IsNoNode(ctx, err) {
		err = nil
	}
	return names, err
}

// ChildrenW is like conn.ChildrenW, or conn.Children if watched is false. With ErrTooLarge it sets no watch.
func ChildrenW(conn *zk.Conn, path string, watched bool) ([]string, *zk.Stat, <-chan zk.Event, error) {
	return read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) {
		if watched {
			return conn.ChildrenW(path)
		}
		names, stat, err := conn.Children(path)
		return names, stat, nil, err
	})
}

// part identifies what a reply contains: the data or the list of children of a znode.
type part struct {
	path     string
	children bool // the reply contains the list of children instead of the data
}

func (p part) String() string {
	if p.children {
		return "list of children of " + p.path
	}
	return "data of " + p.path
}

// suspicion describes a part whose reply may be too large: the connection has broken during the last request for the
// part.
type suspicion struct {
	breaks  int   // the number of consecutive requests during which the connection has broken
	refused int64 // the pzxid of the list of children for which refuseTooLarge has returned an error, or 0
}

// suspicions contains the parts of znodes whose replies may be too large for one connection.
type suspicions struct {
	limit int // the size of the largest reply that the connection accepts, or noLimit
	parts *Table[part, suspicion]
	// alone has the capacity 1. It contains an element while a request that may have broken the connection is
	// repeated, so that its failure is not attributed to another request.
	alone chan struct{}
}

var suspected = NewMap(func(conn *zk.Conn) *suspicions {
	return &suspicions{limit: limitOf(conn), parts: newTable[part, suspicion](), alone: make(chan struct{}, 1)}
})

const noLimit = 0

// noReply is a size that no reply has: by default, servers accept requests of up to a megabyte.
const noReply = 64 << 20

// limitOf returns the size of the largest reply that the connection accepts, or noLimit if that is noReply or more.
// The client library does not export the size: tests fail if a release does not contain the field.
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
	s.parts.Lock()
	before, known := s.parts.Entries[p]
	s.parts.Unlock()
	if known {
		var none T
		exists, stat, err := conn.Exists(p.path)
		if err != nil {
			return none, nil, nil, err
		}
		if exists {
			var refused error
			if before, refused = s.refuseTooLarge(p, before, stat); refused != nil {
				return none, stat, nil, refused
			}
		}
		s.alone <- struct{}{}
		defer func() { <-s.alone }()
	}
	value, stat, watch, err := send()
	s.recordOutcome(p, before.breaks, err)
	return value, stat, watch, err
}

// recordOutcome records the outcome of a request for a part. breaks is the number of failures at the time at which the
// request was sent: requests that were in progress together count as one failure.
func (s *suspicions) recordOutcome(p part, breaks int, err error) {
	s.parts.Lock()
	defer s.parts.Unlock()
	switch x, known := s.parts.Entries[p]; {
	case errors.Is(err, zk.ErrConnectionClosed):
		x.breaks = max(x.breaks, breaks+1)
		s.parts.Remember(p, x)
	case known && !Transient(err):
		delete(s.parts.Entries, p)
	}
}

// refuseTooLarge returns ErrTooLarge if the client must not request the part p again, because the reply is too large.
// x is what is known about p, and the first result replaces it. stat is the Stat of the znode.
func (s *suspicions) refuseTooLarge(p part, x suspicion, stat *zk.Stat) (suspicion, error) {
	refuse := replySize(stat, p.children) > s.limit
	if p.children {
		enough := breaksIfPossible
		if int(stat.NumChildren)*longName < s.limit {
			enough = breaksIfUnlikely
		}
		if x.refused != 0 && x.refused != stat.Pzxid {
			x = suspicion{breaks: breaksIfPossible - 1} // the list has changed, so request the list again
		}
		if refuse = refuse || x.refused != 0 || x.breaks >= enough; refuse {
			x.refused = stat.Pzxid
		}
	}
	s.parts.Lock()
	s.parts.Entries[p] = x
	s.parts.Unlock()
	if !refuse {
		return x, nil
	}
	return x, fmt.Errorf("%w: the %s (%d bytes of data, %d children) exceeds the connection's receive buffer; connect with a larger zk.WithMaxBufferSize",
		ErrTooLarge, p, stat.DataLength, stat.NumChildren)
}

// After so many failures a list of children, whose size is unknown, is considered too large: breaksIfPossible if
// the list may exceed the limit, and breaksIfUnlikely if that is unlikely, because the reply to another request can
// also have broken the connection.
const (
	breaksIfPossible = 4
	breaksIfUnlikely = 16
)

// longName is the number of bytes that a child with a long name adds to a list. If the list would not exceed the
// limit even with such names, breaksIfUnlikely applies.
const longName = 256

// replySize returns the size of a reply. For a list of children, the result is a lower bound.
func replySize(stat *zk.Stat, children bool) int {
	const header, length, statSize, shortName = 16, 4, 68, 4 + 1
	if children {
		return header + length + int(stat.NumChildren)*shortName + statSize
	}
	return header + length + int(stat.DataLength) + statSize
}
