package faultschedule

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// History records what happens in one schedule. Its methods may be called from any goroutine.
type History struct {
	start   time.Time
	verbose bool

	mu         sync.Mutex
	lines      []line // all events if verbose is set; otherwise empty
	violations []string
}

type line struct {
	at   time.Duration
	text string
}

// newHistory returns a History that begins now. If verbose is false, the History contains only violations.
func newHistory(verbose bool) *History {
	return &History{start: time.Now(), verbose: verbose}
}

// Now returns the time since the beginning of the history.
func (h *History) Now() time.Duration { return time.Since(h.start) }

// Note records an event, if the history is verbose.
func (h *History) Note(format string, args ...any) {
	if h.verbose {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lines = append(h.lines, line{h.Now(), fmt.Sprintf(format, args...)})
	}
}

// Violate records that the library has violated a guarantee.
func (h *History) Violate(format string, args ...any) {
	h.Note("VIOLATION: "+format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
}

// Violations returns the violations that Violate has recorded.
func (h *History) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.violations
}

// addRequests adds the requests in the log of the ensemble to the history, if the history is verbose.
func (h *History) addRequests(e *zktest.Ensemble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range e.Server(0).Log() {
		if h.verbose && r.Op != zktest.OpPing {
			h.lines = append(h.lines, line{r.Time.Sub(h.start), fmt.Sprintf("    server %d: %v", r.Server, r)})
		}
	}
	slices.SortStableFunc(h.lines, func(a, b line) int { return int(a.at - b.at) })
}

// String returns the recorded events.
func (h *History) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, l := range h.lines {
		fmt.Fprintf(&b, "%12v  %s\n", l.at, l.text)
	}
	return b.String()
}
