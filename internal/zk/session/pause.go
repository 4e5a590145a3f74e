package session

import (
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
)

// maxTurn bounds the time between two turns of what looks at a connection at intervals:
// the client library waits for a second before it dials the only server again, and
// a break of the connection that begins and ends between two turns is missed.
const maxTurn = 500 * time.Millisecond

// turns notices that this process was stopped, from the times at which any part of it
// ran. It is pure.
type turns struct {
	last    time.Time
	stopped time.Time // when the end of a stop was last noticed
}

// note records that the process runs now. A time of more than limit since the last call
// was a stop.
func (t *turns) note(now time.Time, limit time.Duration) {
	if !t.last.IsZero() && elapsed(t.last, now) > limit {
		t.stopped = now
	}
	t.last = now
}

// attendance takes the turns of one connection, with a timer and no goroutine, as long as
// the connection is in use: from the first mention of it on, because a stop before a
// candidacy begins matters, too.
type attendance struct {
	mu    sync.Mutex
	turns turns
	timer *time.Timer
}

var attendances = perconn.NewMap(func(conn *zk.Conn) *attendance {
	a := &attendance{turns: turns{last: time.Now()}}
	a.mu.Lock()
	defer a.mu.Unlock()
	reference := weak.Make(conn)
	a.timer = time.AfterFunc(turn(Timeout(conn, 0)), func() {
		if conn := reference.Value(); conn != nil {
			timeout := Timeout(conn, 0)
			a.stopped(timeout / 8)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.timer.Reset(turn(timeout))
		}
	})
	return a
})

// Attend watches for stops of the process from now on, until conn is unreachable.
func Attend(conn *zk.Conn) { attendances.Of(conn) }

// turn is the time between two turns.
func turn(timeout time.Duration) time.Duration {
	return max(min(timeout/32, maxTurn), time.Millisecond)
}

// stopped returns when the process was last found to have been stopped for longer than
// limit; the zero time for never.
func (a *attendance) stopped(limit time.Duration) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns.note(time.Now(), limit)
	return a.turns.stopped
}
