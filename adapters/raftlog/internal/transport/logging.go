package transport

import "time"

// reporter lets an error through if it is another one than the last, or after a while.
type reporter struct {
	every time.Duration
	text  string
	last  time.Time
}

func (r *reporter) due(err error) bool {
	now := time.Now()
	if err.Error() == r.text && now.Sub(r.last) < r.every {
		return false
	}
	r.text, r.last = err.Error(), now
	return true
}

// throttle lets something through once a second, and counts what it does not.
type throttle struct {
	last    time.Time
	skipped int
}

func (t *throttle) due() (skipped int, ok bool) {
	now := time.Now()
	if now.Sub(t.last) < time.Second {
		t.skipped++
		return 0, false
	}
	skipped = t.skipped
	t.last, t.skipped = now, 0
	return skipped, true
}

// warn logs what strangers can cause as often as they like.
func (t *Transport) warn(what string, err error) {
	t.mu.Lock()
	skipped, ok := t.quiet.due()
	t.mu.Unlock()
	if ok {
		t.cfg.Log.Warn(what, "err", err, "notLogged", skipped)
	}
}
