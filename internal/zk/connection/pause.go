package connection

import (
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// maxPollInterval limits the time between two polls of a connection. The client library waits for a
// second before it connects to the same server again, so no break of the connection is missed.
// Connections of package zkdial may connect at once, and their breaks are counted.
const maxPollInterval = 500 * time.Millisecond

// pauses detects pauses of this process (SIGSTOP, a suspended machine) from the times at which
// it was running. It is pure.
type pauses struct {
	running time.Time // when the process was last known to run
	paused  time.Time // when a pause was last detected
}

// note records that the process runs at the time now. If more than longest has passed since the
// last call, the process was paused.
func (p *pauses) note(now time.Time, longest time.Duration) {
	if !p.running.IsZero() && limit.Elapsed(p.running, now) > longest {
		p.paused = now
	}
	p.running = now
}

// pauseMonitor detects pauses for one connection, with a timer and without a goroutine, until
// the connection is unreachable. It starts when the connection is first used, because a pause
// before a candidacy matters, too.
type pauseMonitor struct {
	mu     sync.Mutex
	pauses pauses
	timer  *time.Timer
}

var pauseMonitors = NewMap(func(conn *zk.Conn) *pauseMonitor {
	p := &pauseMonitor{pauses: pauses{running: time.Now()}}
	p.mu.Lock()
	defer p.mu.Unlock()
	reference := weak.Make(conn)
	p.timer = time.AfterFunc(pollInterval(SessionTimeout(conn, 0)), func() {
		if conn := reference.Value(); conn != nil {
			timeout := SessionTimeout(conn, 0)
			p.last(timeout / 8)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.timer.Reset(pollInterval(timeout))
		}
	})
	return p
})

// DetectPauses starts to detect pauses of the process, until conn is unreachable.
func DetectPauses(conn *zk.Conn) { pauseMonitors.Of(conn) }

// pollInterval returns the time between two polls.
func pollInterval(timeout time.Duration) time.Duration {
	return max(min(timeout/32, maxPollInterval), time.Millisecond)
}

// last returns when a pause of more than limit was last detected, or the zero time.
func (p *pauseMonitor) last(limit time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauses.note(time.Now(), limit)
	return p.pauses.paused
}
