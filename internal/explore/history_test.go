package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// span is one leadership as its reader saw it: from the delivery of the status
// until Done was closed.
type span struct {
	who   string
	id    string
	token int64
	from  time.Duration
	until time.Duration
	over  bool
	grant *leaderelection.Leadership
}

func (s *span) String() string {
	return fmt.Sprintf("%s (token %d, %v to %v)", s.who, s.token, s.from, s.until)
}

// history is what has happened in one schedule.
type history struct {
	start time.Time

	mu         sync.Mutex
	lines      []line
	spans      []*span
	excused    map[string]time.Duration // znodes that were taken away, and when at the latest
	writes     []write
	marked     time.Duration // when the election was ended; 0 for never
	violations []string
}

// write is a transaction that was carried out for a leader.
type write struct{ zxid, token int64 }

type line struct {
	at     time.Duration
	format string
	args   []any
}

func newHistory() *history {
	return &history{start: time.Now(), excused: map[string]time.Duration{}}
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line{h.now(), format, args})
}

func (h *history) violation(format string, args ...any) {
	h.note("VIOLATION: "+format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
}

// excuse notes that a znode is being taken away by somebody who has no right to.
func (h *history) excuse(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.excused[id]; !known && id != "" {
		h.excused[id] = h.now()
	}
}

// taken notes that the znode is gone by now.
func (h *history) taken(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.excused[id] = h.now()
}

func (h *history) isExcused(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, is := h.excused[id]
	return is
}

func (h *history) begin(who, id string, grant *leaderelection.Leadership) *span {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &span{who: who, id: id, token: grant.Token(), from: h.now(), grant: grant}
	h.spans = append(h.spans, s)
	return s
}

func (h *history) end(s *span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.until, s.over = h.now(), true
}

func (h *history) wrote(token, zxid int64) {
	h.note("written with token %d in transaction %d", token, zxid)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, write{zxid, token})
}

// leading are those whose leadership is proven at this instant.
func (h *history) leading() (found []*span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.spans {
		if !s.over && s.grant.Err() == nil {
			found = append(found, s)
		}
	}
	return found
}

// judge checks the leaderships: no two at once, and tokens that grow. One whose
// znode was taken away may overlap with its successors, by no more than grace:
// the rest of its lease.
func judge(spans []*span, excused map[string]time.Duration, grace time.Duration) (violations []string) {
	for i, a := range spans {
		since, isExcused := excused[a.id]
		if isExcused && a.over && a.until > since+grace {
			violations = append(violations, fmt.Sprintf("%v led for %v after its znode was taken away", a, a.until-since))
		}
		for _, b := range spans[i+1:] {
			_, bExcused := excused[b.id]
			from, until := max(a.from, b.from), min(a.until, b.until)
			if a.id != b.id && from < until && !isExcused && !bExcused {
				violations = append(violations, fmt.Sprintf("two leaders for %v: %v and %v", until-from, a, b))
			}
			if b.token < a.token && b.from > a.from && !isExcused && !bExcused {
				violations = append(violations, fmt.Sprintf("tokens do not grow: %v, then %v", a, b))
			}
			if (a.token == b.token) != (a.id == b.id) {
				violations = append(violations, fmt.Sprintf("%v and %v: one token is one znode's", a, b))
			}
		}
	}
	return violations
}

// mark notes each transaction with the mark of the end: the last one is the
// deletion of the election.
func (h *history) mark() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marked = h.now()
}

// judgeEnd checks that nobody wins an election that has been deleted. Between
// the mark and that one may who was the first before, and waits for a proof.
func judgeEnd(spans []*span, marked, latency time.Duration) (violations []string) {
	if marked == 0 {
		return nil
	}
	won := map[string]bool{}
	for _, s := range spans {
		if s.from > marked+latency && !won[s.id] {
			violations = append(violations, fmt.Sprintf("%v has won after the end at %v", s, marked))
		}
		won[s.id] = true
	}
	return violations
}

// judgeWrites checks that nothing was written for a leader after its successor
// had written: for that there is no excuse.
func judgeWrites(writes []write) (violations []string) {
	writes = slices.SortedFunc(slices.Values(writes), func(a, b write) int { return cmp.Compare(a.zxid, b.zxid) })
	for i := 1; i < len(writes); i++ {
		if a, b := writes[i-1], writes[i]; b.token < a.token {
			violations = append(violations, fmt.Sprintf("token %d has written after token %d", b.token, a.token))
		}
	}
	return violations
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, l := range h.lines {
		fmt.Fprintf(&b, "%12v  ", l.at)
		fmt.Fprintf(&b, l.format, l.args...)
		b.WriteByte('\n')
	}
	return b.String()
}
