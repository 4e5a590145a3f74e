package connection

import (
	"log/slog"
	"time"
)

// hangTimeouts is the number of session timeouts after which a client library that does not try to
// connect is considered to hang. It has a session or tries to connect within two seconds otherwise, unless
// a HostProvider or an event callback of the user blocks, which cannot be distinguished.
const (
	hangTimeouts = 3
	minHang      = 10 * time.Second
	minHangTicks = 20 // of the monitor's goroutine, at least as far apart as pollInterval
)

// hangs reports whether the client library hangs. The session has ended then, because no client has
// extended it. The caller holds mu.
func (m *monitor) hangs(now time.Time) bool {
	if m.seen.Idle.IsZero() || m.seen.Idle != m.idle {
		m.idle, m.idleTicks = m.seen.Idle, 0
		return false
	}
	// After a pause of the process, the client library has not run either: the time alone proves nothing.
	m.idleTicks++
	if now.Sub(m.idle) <= max(hangTimeouts*m.lease.timeout, minHang) || m.idleTicks < minHangTicks {
		return false
	}
	for s := range m.subs {
		if s.log != nil {
			m.logLater(s.log, slog.LevelError, "the connection is unusable", "err", ErrHangs)
		}
	}
	return true
}
