package connection

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

const (
	// shortSession is the longest duration of a session that noteSession counts as short.
	shortSession = 3 * time.Second
	// manyShort is the number of consecutive short sessions after which noteSession logs an error.
	manyShort = 3
)

// noteSession records that a new session follows the session old (0 for none), and logs an error if several
// consecutive sessions were short. A server that does not implement setWatches closes the connection on which the
// client library sends this request, and if the server does not continue sessions either, the client can never set
// a watch. The caller holds mu.
func (m *monitor) noteSession(old int64) {
	now := time.Now()
	if old != 0 && !m.began.IsZero() && limit.Elapsed(m.began, now) < shortSession {
		m.short++
	} else {
		m.short = 0
	}
	m.began = now
	if m.short != manyShort {
		return
	}
	m.logAll(slog.LevelError, "sessions end again and again right after they have begun: a server that does not implement setWatches, such as ClickHouse Keeper before 26.1, cannot be used (docs/servers.md)",
		"server", m.seen.Server, "sessions", m.short)
}

// warnOutage logs one warning if no server has continued the session for longer than its timeout. Servers without a
// quorum, and servers that have lost their data, accept connections and close them, which the client library does
// not report. The caller holds mu.
func (m *monitor) warnOutage(now time.Time) {
	switch {
	case m.seen.Up:
		m.downSince, m.warned = time.Time{}, false
	case m.downSince.IsZero():
		m.downSince = now
	case !m.warned && limit.Elapsed(m.downSince, now) > m.lease.timeout:
		m.warned = true
		m.logAll(slog.LevelWarn, "no server has continued the session for longer than its timeout; if servers are reachable, they have no quorum or have lost their data, and then only connections of zkdial.Connect recover (docs/servers.md)",
			"timeout", m.lease.timeout, "err", m.seen.Failure)
	}
}

// logLater adds a log message that the goroutine of the monitor writes without holding mu, because a log handler
// may call methods that lock mu. The caller holds mu.
func (m *monitor) logLater(s *Subscription, level slog.Level, text string, args ...any) {
	if log := s.log; log != nil {
		m.logs = append(m.logs, func() { log.Log(context.Background(), level, text, args...) })
	}
}

func (m *monitor) logAll(level slog.Level, text string, args ...any) {
	for s := range m.subs {
		m.logLater(s, level, text, args...)
	}
}

// The limits after which a client library that does not try to connect is considered to hang. hangTimeouts is a
// number of session timeouts. Instead of the library, a HostProvider or an event callback of the user may block.
const (
	hangTimeouts = 3
	minHang      = 10 * time.Second
	minHangTicks = 20 // ticks of the monitor's goroutine, which are at least pollInterval apart
)

// hangs reports whether the client library hangs, so that the session has ended, and logs an error in this case.
// The caller holds mu.
func (m *monitor) hangs(now time.Time) bool {
	if m.seen.Idle.IsZero() || m.seen.Idle != m.idle {
		m.idle, m.idleTicks = m.seen.Idle, 0
		return false
	}
	// A pause of the process also makes this time long, although the library does not hang. So require a number of
	// ticks as well.
	m.idleTicks++
	if now.Sub(m.idle) <= max(hangTimeouts*m.lease.timeout, minHang) || m.idleTicks < minHangTicks {
		return false
	}
	m.logAll(slog.LevelError, "the connection is unusable", "err", ErrHangs)
	return true
}
