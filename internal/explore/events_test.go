package explore

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// hookLog checks that a candidate's hooks are called in an order that has a meaning,
// and not after its end.
type hookLog struct {
	w *world
	c *candidate

	mu    sync.Mutex
	last  string
	token int64
	calls int
	over  bool
}

// before lists what a hook may come after; "" is the beginning. A place in line that
// is left without a leadership has no hook of its own: it is followed by another one
// or by the candidacy's end.
var before = map[string][]string{
	"joined":    {"", "joined", "lost"},
	"elected":   {"joined"},
	"suspended": {"elected", "resumed"},
	"resumed":   {"suspended"},
	"lost":      {"elected", "resumed", "suspended"},
	"ended":     {"", "joined", "lost"},
}

func (h *hookLog) option() leaderelection.Option {
	return leaderelection.WithHooks(leaderelection.Hooks{
		Joined:    h.says("joined"),
		Elected:   h.says("elected"),
		Suspended: h.says("suspended"),
		Resumed:   h.says("resumed"),
		Lost:      h.says("lost"),
		Ended:     h.says("ended"),
		Missed: func(e leaderelection.HookEvent) {
			h.w.violation("%s: %d events were missed by hooks that return at once", h.c.name, e.Missed)
		},
	})
}

func (h *hookLog) says(what string) func(leaderelection.HookEvent) {
	return func(e leaderelection.HookEvent) {
		h.w.note("%s: hook: %s %s token %d %v", h.c.name, what, e.ID, e.Token, e.Err)
		h.mu.Lock()
		switch {
		case h.over:
			h.w.violation("%s: hook after the end: %s", h.c.name, what)
		case !slices.Contains(before[what], h.last):
			h.w.violation("%s: hook %s after %q", h.c.name, what, h.last)
		case what == "elected" && e.Token <= h.token, what == "resumed" && e.Token != h.token:
			h.w.violation("%s: hook %s with token %d after %d", h.c.name, what, e.Token, h.token)
		case (what == "suspended" || what == "lost" || what == "ended") == (e.Err == nil):
			h.w.violation("%s: hook %s with the reason %v", h.c.name, what, e.Err)
		case what == "ended" && errors.Is(e.Err, leaderelection.ErrLeaseExpired):
			h.w.violation("%s: ended by a lapse", h.c.name)
		}
		h.last, h.token = what, max(h.token, e.Token)
		h.calls++
		busy := h.w.lazy && h.calls%3 == 0
		h.mu.Unlock()
		if busy {
			// Not a part of the time for which ElectLeader waits for hooks.
			time.Sleep(h.w.timeout/5 + time.Microsecond)
		}
	}
}

// end is called when ElectLeader has returned.
func (h *hookLog) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls > 0 && h.last != "ended" && !h.w.lazy {
		h.w.violation("%s: the last hook was %s", h.c.name, h.last)
	}
	h.over = true
}
