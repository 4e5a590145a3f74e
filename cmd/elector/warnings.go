package main

// Warnings that are repeated for as long as a server cannot be reached.

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	minWarningPause = time.Second
	maxWarningPause = time.Minute
	// maxWarnings bounds the number of texts that are remembered.
	maxWarnings = 100
)

// limitedLog returns a logger that logs a warning at once, and the same warning again only
// after a pause that doubles from a second to a minute. A warning that did not occur for a
// time is logged at once again.
func (s *settings) limitedLog() *slog.Logger {
	return slog.New(&limiter{s.log.Handler(), newWarnings()})
}

// limiter is the handler of limitedLog.
type limiter struct {
	slog.Handler
	*warnings
}

func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return l.Handler.Handle(ctx, r)
	}
	key := r.Message
	r.Attrs(func(a slog.Attr) bool {
		key += " " + a.String()
		return true
	})
	dropped, due := l.due(key, r.Time)
	if !due {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", dropped))
	}
	return l.Handler.Handle(ctx, r)
}

func (l *limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limiter{l.Handler.WithAttrs(attrs), l.warnings}
}

func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{l.Handler.WithGroup(name), l.warnings}
}

// warnings remembers when warnings occurred.
type warnings struct {
	mu   sync.Mutex
	seen map[string]*warning
}

// warning is what is known of one text.
type warning struct {
	last    time.Time // when it occurred
	logged  time.Time
	pause   time.Duration
	dropped int // since it was logged
}

func newWarnings() *warnings { return &warnings{seen: map[string]*warning{}} }

// due reports whether to log the text now, and how often it was dropped since the last time.
func (w *warnings) due(text string, now time.Time) (dropped int, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.seen[text]
	if x == nil || now.Sub(x.last) > 2*maxWarningPause {
		if x == nil && len(w.seen) >= maxWarnings {
			clear(w.seen)
		}
		w.seen[text] = &warning{last: now, logged: now, pause: minWarningPause}
		return 0, true
	}
	x.last = now
	if now.Sub(x.logged) < x.pause {
		x.dropped++
		return 0, false
	}
	dropped, x.dropped = x.dropped, 0
	x.logged, x.pause = now, min(2*x.pause, maxWarningPause)
	return dropped, true
}
