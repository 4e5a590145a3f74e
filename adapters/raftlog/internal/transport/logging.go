package transport

import "time"

// Reporters suppresses repeated log messages about the same error, separately for each key.
type Reporters map[string]reportedError

// reportedError is the error that was last logged for a key, and when.
type reportedError struct {
	text string
	last time.Time
}

// reportInterval is the interval at which the same error of a key is logged again.
const reportInterval = time.Minute

// maxReporters is the maximum number of keys that a Reporters remembers. A further key makes it forget all
// others.
const maxReporters = 256

// ShouldReport reports whether to log err: it differs from the last logged error of the key, or that
// error was logged more than reportInterval ago. If so, ShouldReport records err as logged.
func (r Reporters) ShouldReport(key string, err error) bool {
	now := time.Now()
	last, found := r[key]
	if err.Error() == last.text && now.Sub(last.last) < reportInterval {
		return false
	}
	if !found && len(r) >= maxReporters {
		clear(r)
	}
	r[key] = reportedError{err.Error(), now}
	return true
}

// throttle limits log messages to one per second.
type throttle struct {
	last    time.Time
	skipped int
}

// allowMessage reports whether a message may be logged now, and how many messages were skipped since
// the last one.
func (t *throttle) allowMessage() (skipped int, ok bool) {
	now := time.Now()
	if now.Sub(t.last) < time.Second {
		t.skipped++
		return 0, false
	}
	skipped = t.skipped
	t.last, t.skipped = now, 0
	return skipped, true
}

// warnThrottled logs a warning that other processes can cause, at most once per second.
func (t *Transport) warnThrottled(message string, err error) {
	t.mu.Lock()
	skipped, ok := t.warnings.allowMessage()
	t.mu.Unlock()
	if ok {
		t.cfg.Log.Warn(message, "err", err, "notLogged", skipped)
	}
}
