package handshake

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
)

// Record holds the results of the handshakes of one connection. Its methods may be
// called from any goroutine.
type Record struct {
	mu      sync.Mutex
	read    time.Duration // by the dialer; 0 without
	lost    int64
	losses  int
	losing  bool // a session was lost, and no new one has begun
	failure error
	breaks  uint64
}

var records = perconn.NewMap(func(*zk.Conn) *Record { return &Record{} })

// Of returns the record of a connection.
func Of(conn *zk.Conn) *Record { return records.Of(conn) }

// Grant records the session timeout that a server has granted.
func (r *Record) Grant(timeout time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.failure, r.losing = timeout, nil, false
}

// Fail records why the connection is without a session at this moment. The next Grant clears it.
func (r *Record) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// Failure returns why the connection is without a session, or nil if that is not known.
func (r *Record) Failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// Break records that a network connection that has had a session was closed.
func (r *Record) Break() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaks++
}

// Breaks counts the calls of Break. It is 0 for connections that were opened without package zkdial.
func (r *Record) Breaks() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.breaks
}

// Lose records that the servers do not know the session any more because they have lost their
// data.
func (r *Record) Lose(session int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost, r.losing = session, true
	r.losses++
}

// Losing reports whether the last session was lost with the servers' data and no session has begun
// since.
func (r *Record) Losing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.losing
}

// Losses counts the calls of Lose.
func (r *Record) Losses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.losses
}

// Lost reports whether session is the session that was last lost with the servers' data.
func (r *Record) Lost(session int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return session != 0 && r.lost == session
}
