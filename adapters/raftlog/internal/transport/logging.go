package transport

import "time"

// Reporter suppresses repeated errors. The zero value is valid.
type Reporter struct {
	text string
	last time.Time
}

// reportInterval is the interval at which a repeated error is reported again.
const reportInterval = time.Minute

// ShouldReport reports whether err differs from the last error, or whether the last error was
// reported long ago.
func (r *Reporter) ShouldReport(err error) bool {
	now := time.Now()
	if err.Error() == r.text && now.Sub(r.last) < reportInterval {
		return false
	}
	r.text, r.last = err.Error(), now
	return true
}

// throttle limits messages to one per second.
type throttle struct {
	last    time.Time
	skipped int
}

// allow reports whether a message may be logged, and how many messages were skipped before.
func (t *throttle) allow() (skipped int, ok bool) {
	now := time.Now()
	if now.Sub(t.last) < time.Second {
		t.skipped++
		return 0, false
	}
	skipped = t.skipped
	t.last, t.skipped = now, 0
	return skipped, true
}

// warnThrottled logs a warning that other processes can cause at any rate.
func (t *Transport) warnThrottled(message string, err error) {
	t.mu.Lock()
	skipped, ok := t.warnings.allow()
	t.mu.Unlock()
	if ok {
		t.cfg.Log.Warn(message, "err", err, "notLogged", skipped)
	}
}
