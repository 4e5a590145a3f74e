package request

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Get is conn.Get. Like the functions below it returns zkerror.ErrTooLarge, with what to do
// about it, for an answer that is known to break the connection. It takes at least one
// failure to know that: the error is then zk.ErrConnectionClosed, and the caller repeats
// the request as after any transient failure. After the znode has changed the request is
// sent again. The Stat is returned with zkerror.ErrTooLarge, too. Functions may be called from any
// goroutine.
func Get(conn *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	data, stat, _, err := read(conn, part{path, false}, func() ([]byte, *zk.Stat, <-chan zk.Event, error) {
		data, stat, err := conn.Get(path)
		return data, stat, nil, err
	})
	return data, stat, err
}

// GetW is conn.GetW. With zkerror.ErrTooLarge it returns the Stat and a watch all the same.
func GetW(conn *zk.Conn, path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	data, stat, watch, err := read(conn, part{path, false}, func() ([]byte, *zk.Stat, <-chan zk.Event, error) { return conn.GetW(path) })
	if !errors.Is(err, zkerror.ErrTooLarge) {
		return data, stat, watch, err
	}
	exists, stat, watch, failed := conn.ExistsW(path)
	switch {
	case failed != nil:
		return nil, nil, nil, failed
	case !exists:
		return nil, nil, nil, zk.ErrNoNode
	}
	return nil, stat, watch, err
}

// Children is conn.Children.
func Children(conn *zk.Conn, path string) ([]string, *zk.Stat, error) {
	names, stat, _, err := read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) {
		names, stat, err := conn.Children(path)
		return names, stat, nil, err
	})
	return names, stat, err
}

// ChildrenW is conn.ChildrenW. With zkerror.ErrTooLarge no watch is set.
func ChildrenW(conn *zk.Conn, path string) ([]string, *zk.Stat, <-chan zk.Event, error) {
	return read(conn, part{path, true}, func() ([]string, *zk.Stat, <-chan zk.Event, error) { return conn.ChildrenW(path) })
}

// part is what an answer contains of a znode.
type part struct {
	path     string
	children bool // and not the data
}

func (p part) String() string {
	if p.children {
		return "list of children of " + p.path
	}
	return "data of " + p.path
}

// suspicion counts the failures of a part whose last request has failed with the
// connection.
type suspicion struct {
	breaks  int   // in a row
	refused int64 // the zxid of the state that is known to be too large, or 0
}

// suspicions are those of one connection.
type suspicions struct {
	limit int // of an answer, noLimit or unknownLimit

	mu    sync.Mutex
	parts map[part]suspicion
	// alone, of capacity 1, holds an element while a request is repeated that may have
	// broken the connection, so that such requests are not blamed for each other.
	alone chan struct{}
}

var suspected = perconn.NewMap(func(conn *zk.Conn) *suspicions {
	return &suspicions{limit: limitOf(conn), parts: map[part]suspicion{}, alone: make(chan struct{}, 1)}
})

const (
	noLimit      = 0
	unknownLimit = -1
	maxSuspected = 4096 // parts of one connection
)

// limitOf returns the size of the largest answer that the connection accepts. The client
// library does not export it.
func limitOf(conn *zk.Conn) int {
	field := reflect.ValueOf(conn).Elem().FieldByName("maxBufferSize")
	if !field.IsValid() || !field.CanInt() {
		return unknownLimit
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

// note takes in the outcome of a request that was sent after so many breaks. Requests
// that were in progress together have failed in one break.
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

// judge decides by the Stat whether a part is requested again. The error
// is nil if it is.
func (s *suspicions) judge(p part, x suspicion, stat *zk.Stat) (suspicion, error) {
	zxid, size, enough := stat.Mzxid, answerSize(stat, p.children), breaksIfPossible
	if p.children {
		zxid = stat.Pzxid
	}
	certain := s.limit != unknownLimit && size > s.limit
	switch {
	case certain:
	case !p.children && s.limit != unknownLimit:
		enough = never
	case p.children && int(stat.NumChildren)*longName < s.assumedLimit(), !p.children && size < s.assumedLimit():
		enough = breaksIfUnlikely
	}
	if x.refused != 0 && x.refused != zxid {
		x = suspicion{breaks: min(enough, breaksIfPossible) - 1} // it has changed: once more
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
	return x, fmt.Errorf("%w: the %s (%d bytes of data, %d children); connect with a larger zk.WithMaxBufferSize",
		zkerror.ErrTooLarge, p, stat.DataLength, stat.NumChildren)
}

// How often the connection must break until a part is too large: if its size is not
// known and may exceed the limit, and if that is unlikely. A request that fails because
// of another answer must not be blamed.
const (
	breaksIfPossible = 4
	breaksIfUnlikely = 16
	never            = 1 << 30
)

// longName is the length of a long name with its header.
const longName = 256

// assumedLimit is the limit, or what a small one is.
func (s *suspicions) assumedLimit() int {
	if s.limit == unknownLimit {
		return 32 << 10
	}
	return s.limit
}

// answerSize is the size of an answer, the least possible one for a list of children.
func answerSize(stat *zk.Stat, children bool) int {
	const header, length, statSize, shortName = 16, 4, 68, 4 + 1
	if children {
		return header + length + int(stat.NumChildren)*shortName + statSize
	}
	return header + length + int(stat.DataLength) + statSize
}
