package session

import (
	"context"
	"log/slog"
	"time"
)

const (
	// shortSession is a session that ends right after it began.
	shortSession = 3 * time.Second
	// manyShort is how many of them in succession are reported.
	manyShort = 3
)

// replaced notes that another session follows old, 0 for none. A server that does not
// implement setWatches closes the connection on which the client library sends it, and one
// that does not continue sessions gives the client another one each time: then no
// session lasts, and no watch is set, until the client closes the connection. The
// caller holds mu.
func (m *monitor) replaced(old int64) {
	now := time.Now()
	if old != 0 && !m.began.IsZero() && elapsed(m.began, now) < shortSession {
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
			m.report(s.log, slog.LevelError, "sessions end again and again right after they have begun: a server that does not implement setWatches, such as ClickHouse Keeper before 26.1, cannot be used (docs/servers.md)",
				"server", m.seen.server, "sessions", m.short)
		}
	}
}

// lasting warns, once, if there has been no session for longer than its timeout. Servers
// without a quorum, and servers that have lost their data, accept connections and close
// them, and the client library reports neither. The caller holds mu.
func (m *monitor) lasting(now time.Time) {
	switch {
	case m.seen.up:
		m.downSince, m.warned = time.Time{}, false
	case m.downSince.IsZero():
		m.downSince = now
	case !m.warned && elapsed(m.downSince, now) > m.lease.timeout:
		m.warned = true
		failure := m.record.Failure()
		for s := range m.subs {
			if s.log != nil {
				m.report(s.log, slog.LevelWarn, "no server has continued the session for longer than its timeout; if servers are reachable, they have no quorum or have lost their data, and then only connections of zkdial.Connect recover (docs/servers.md)",
					"timeout", m.lease.timeout, "err", failure)
			}
		}
	}
}

// report has the goroutine log, without the lock: a handler may use what is locked. The
// caller holds mu.
func (m *monitor) report(log *slog.Logger, level slog.Level, text string, args ...any) {
	m.reports = append(m.reports, func() { log.Log(context.Background(), level, text, args...) })
}
