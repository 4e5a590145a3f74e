package connection

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/go-zookeeper/zk"
)

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

// Children is conn.Children.
func Children(conn *zk.Conn, path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) {
		names, stat, err := conn.Children(path)
		return names, stat, nil, err
	})
	return names, stat, err
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

// suspicions contains the suspicions of one connection.
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
	before, known := s.of(p)
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

func (s *suspicions) of(p part) (suspicion, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, known := s.parts[p]
	return x, known
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
