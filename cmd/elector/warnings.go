package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	minWarningPause = time.Second
	maxWarningPause = time.Minute
	// maxWarnings is the maximum number of different warnings that a warningHistory keeps.
	maxWarnings = 100
)

// limitedLog returns a logger that repeats a warning only after a pause, which doubles from a second to a minute. The
// logger logs a warning immediately if that warning is new, or has not occurred for some time.
func (s *settings) limitedLog() *slog.Logger {
	return slog.New(&warningLimiter{s.log.Handler(), newWarningHistory()})
}

// warnWhileWaiting starts to log warnings that the servers do not answer: the first after two seconds, and further
// warnings after pauses that double, until stop is called.
func (s *settings) warnWhileWaiting() (stop func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		start := time.Now()
		for pause := 2 * time.Second; ; pause = min(2*pause, maxWarningPause) {
			select {
			case <-time.After(pause):
				s.log.Warn("still waiting for an answer", "backend", s.backend,
					"servers", backendKinds[s.backend].servers(s), "since", start)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}

// warningLimiter is the slog.Handler of limitedLog.
type warningLimiter struct {
	slog.Handler
	history *warningHistory
}

func (l *warningLimiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return l.Handler.Handle(ctx, r)
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	dropped, due := l.history.add(text, r.Time)
	if !due {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", dropped))
	}
	return l.Handler.Handle(ctx, r)
}

func (l *warningLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &warningLimiter{l.Handler.WithAttrs(attrs), l.history}
}

func (l *warningLimiter) WithGroup(name string) slog.Handler {
	return &warningLimiter{l.Handler.WithGroup(name), l.history}
}

// warningHistory remembers when each warning has occurred and was logged.
type warningHistory struct {
	mu       sync.Mutex
	warnings map[string]*warning // the warnings by their texts
}

type warning struct {
	occurred time.Time // the time at which the warning last occurred
	logged   time.Time // the time at which the warning was last logged
	pause    time.Duration
	dropped  int // the number of occurrences since the warning was logged
}

func newWarningHistory() *warningHistory { return &warningHistory{warnings: map[string]*warning{}} }

// add records that a warning has occurred. due reports whether the caller must log the warning now, and dropped is
// the number of earlier occurrences that were not logged.
func (h *warningHistory) add(text string, now time.Time) (dropped int, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.warnings[text]
	if w == nil || now.Sub(w.occurred) > 2*maxWarningPause {
		if w == nil && len(h.warnings) >= maxWarnings {
			clear(h.warnings)
		}
		h.warnings[text] = &warning{occurred: now, logged: now, pause: minWarningPause}
		return 0, true
	}
	w.occurred = now
	if now.Sub(w.logged) < w.pause {
		w.dropped++
		return 0, false
	}
	dropped, w.dropped = w.dropped, 0
	w.logged, w.pause = now, min(2*w.pause, maxWarningPause)
	return dropped, true
}
