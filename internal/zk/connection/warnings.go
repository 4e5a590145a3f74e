package connection

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

const (
	// shortSession is the longest duration of a session that counts as short.
	shortSession = 3 * time.Second
	// manyShort is the number of consecutive short sessions that is reported.
	manyShort = 3
)

// noteSession notes that a new session follows the session old, 0 for none, and logs an error
// if sessions are short. A server that does not implement setWatches closes the connection on
// which the client library sends it. If it does not continue sessions either, every session is
// short, and no watch is set. The caller holds mu.
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
	for s := range m.subs {
		if s.log != nil {
			m.logLater(s.log, slog.LevelError, "sessions end again and again right after they have begun: a server that does not implement setWatches, such as ClickHouse Keeper before 26.1, cannot be used (docs/servers.md)",
				"server", m.seen.Server, "sessions", m.short)
		}
	}
}

// warnOutage logs one warning if no server has continued the session for longer than its
// timeout. Servers without a quorum, and servers that have lost their data, accept connections
// and close them, which the client library does not report. The caller holds mu.
func (m *monitor) warnOutage(now time.Time) {
	switch {
	case m.seen.Up:
		m.downSince, m.warned = time.Time{}, false
	case m.downSince.IsZero():
		m.downSince = now
	case !m.warned && limit.Elapsed(m.downSince, now) > m.lease.timeout:
		m.warned = true
		for s := range m.subs {
			if s.log != nil {
				m.logLater(s.log, slog.LevelWarn, "no server has continued the session for longer than its timeout; if servers are reachable, they have no quorum or have lost their data, and then only connections of zkdial.Connect recover (docs/servers.md)",
					"timeout", m.lease.timeout, "err", m.seen.Failure)
			}
		}
	}
}

// logLater adds a log message that the goroutine writes without holding mu, because a handler
// may call methods that lock it. The caller holds mu.
func (m *monitor) logLater(log *slog.Logger, level slog.Level, text string, args ...any) {
	m.logs = append(m.logs, func() { log.Log(context.Background(), level, text, args...) })
}

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
