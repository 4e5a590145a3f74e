package integrationtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
)

// history records the leaderships and the fenced writes of all candidates. All times are read from the same clock.
type history struct {
	start time.Time

	mu      sync.Mutex
	records []string
	terms   []*term
	writes  []fencedWrite
	written chan struct{} // closed and replaced when a write is recorded
}

// term is one leadership, from the time at which the test has read its status until its channel Done was closed.
type term struct {
	name, id string
	token    int64
	from     time.Time
	until    time.Time // when Done was closed; the zero value if the leadership has not ended
	done     <-chan struct{}
}

func (l *term) String() string {
	return fmt.Sprintf("%s (%s, token %d)", l.name, l.id, l.token)
}

// fencedWrite is a transaction of a leader that the servers have applied.
type fencedWrite struct {
	at    time.Time
	name  string
	token int64
	zxid  int64
}

func newHistory() *history {
	return &history{start: time.Now(), written: make(chan struct{})}
}

// addRecord adds a line to the history.
func (h *history) addRecord(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addRecordAt(time.Now(), format, args...)
}

func (h *history) addRecordAt(at time.Time, format string, args ...any) {
	h.records = append(h.records, fmt.Sprintf("%9.3fs  ", at.Sub(h.start).Seconds())+fmt.Sprintf(format, args...))
}

// addTerm records that the test has read a leadership, and returns its term. Earlier terms whose channel Done is
// closed have ended by now, even if endTerm was not called for them yet, because their readers could have noticed it.
func (h *history) addTerm(name, id string, l *leaderelection.Leadership) *term {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, open := range h.terms {
		if open.until.IsZero() && isClosed(open.done) {
			open.until = now
		}
	}
	t := &term{name: name, id: id, token: l.Token(), from: now, done: l.Done()}
	if isClosed(t.done) {
		t.until = now // this leadership has ended before the new one was read
	}
	h.terms = append(h.terms, t)
	h.addRecordAt(now, "%s became leader with token %d as %s", name, t.token, id)
	return t
}

// endTerm records that the channel Done of a leadership is closed, which ends its term.
func (h *history) endTerm(t *term, reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if t.until.IsZero() {
		t.until = now
	}
	h.addRecordAt(now, "%s lost the leadership: %v", t.name, reason)
}

// addWrite records a fenced write of the leader with the given name.
func (h *history) addWrite(name string, token, zxid int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, fencedWrite{time.Now(), name, token, zxid})
	close(h.written)
	h.written = make(chan struct{})
}

// waitWriteAfter waits until a fenced write with a greater zxid than the given one is recorded.
func (h *history) waitWriteAfter(zxid int64, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		h.mu.Lock()
		found := slices.ContainsFunc(h.writes, func(w fencedWrite) bool { return w.zxid > zxid })
		written := h.written
		h.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-written:
		case <-timer.C:
			return fmt.Errorf("no candidate has led within %v", limit)
		}
	}
}

// currentLeader returns the name of the current leader, or "" if there is none.
func (h *history) currentLeader() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.terms {
		if t.until.IsZero() && !isClosed(t.done) {
			return t.name
		}
	}
	return ""
}

// checkTerms returns an error if terms overlap, if the token does not increase from one leader to the next, or if a
// leader has written after its successor has.
func (h *history) checkTerms() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	terms := slices.Clone(h.terms)
	slices.SortStableFunc(terms, func(a, b *term) int { return a.from.Compare(b.from) })
	for i, t := range terms {
		for _, earlier := range terms[:i] {
			switch {
			case earlier.until.IsZero():
				fail("%v became leader at %.3fs while %v has not ended yet", t, h.secondsAt(t.from), earlier)
			case earlier.until.After(t.from):
				fail("%v became leader at %.3fs, %v before the end of %v", t, h.secondsAt(t.from), earlier.until.Sub(t.from), earlier)
			}
		}
		if i == 0 {
			continue
		}
		// A leader that was suspended resumes with the same token.
		switch before := terms[i-1]; {
		case t.token < before.token, t.token == before.token && t.id != before.id:
			fail("%v became leader after %v: the token did not increase", t, before)
		case t.token > before.token && t.id == before.id:
			fail("%v became leader after %v: the token of the candidate has changed", t, before)
		}
	}

	writes := slices.Clone(h.writes)
	slices.SortStableFunc(writes, func(a, b fencedWrite) int { return int(a.zxid - b.zxid) })
	for i := 1; i < len(writes); i++ {
		if writes[i].token < writes[i-1].token {
			fail("zxid %#x was written with token %d after %#x with the later token %d",
				writes[i].zxid, writes[i].token, writes[i-1].zxid, writes[i-1].token)
		}
	}
	return errors.Join(errs...)
}

func (h *history) secondsAt(at time.Time) float64 { return at.Sub(h.start).Seconds() }

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.records, "\n")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestHistory_FindsViolations checks that history rejects terms that overlap, tokens that do not increase, and writes
// of former leaders.
func TestHistory_FindsViolations(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	termOf := func(name string, token int64, from, until int) *term {
		l := &term{name: name, id: "/e/" + name, token: token, from: at(from), done: make(chan struct{})}
		if until > 0 {
			l.until = at(until)
		}
		return l
	}
	const open = 0
	for _, c := range []struct {
		name   string
		terms  []*term
		writes []fencedWrite
		want   string // empty for a valid history
	}{
		{name: "one after the other", terms: []*term{termOf("a", 1, 0, 2), termOf("b", 2, 3, open)}},
		{name: "at the same instant", terms: []*term{termOf("a", 1, 0, 2), termOf("b", 2, 2, open)}},
		{name: "suspended and resumed", terms: []*term{termOf("a", 1, 0, 2), termOf("a", 1, 3, 4), termOf("b", 2, 5, open)}},
		{name: "overlap", terms: []*term{termOf("a", 1, 0, 3), termOf("b", 2, 2, open)}, want: "before the end of a"},
		{name: "overlap with an earlier term", terms: []*term{termOf("a", 1, 0, 9), termOf("b", 2, 1, 2), termOf("c", 3, 10, open)}, want: "before the end of a"},
		{name: "the first has not ended", terms: []*term{termOf("a", 1, 0, open), termOf("b", 2, 2, open)}, want: "has not ended yet"},
		{name: "token decreases", terms: []*term{termOf("a", 2, 0, 1), termOf("b", 1, 2, open)}, want: "did not increase"},
		{name: "token used twice", terms: []*term{termOf("a", 1, 0, 1), termOf("b", 1, 2, open)}, want: "did not increase"},
		{name: "token of a candidate changes", terms: []*term{termOf("a", 1, 0, 1), termOf("a", 2, 2, open)}, want: "has changed"},
		{name: "writes in order", writes: []fencedWrite{{token: 2, zxid: 30}, {token: 1, zxid: 10}, {token: 1, zxid: 20}}},
		{name: "write of an earlier leader", writes: []fencedWrite{{token: 1, zxid: 10}, {token: 2, zxid: 20}, {token: 1, zxid: 30}}, want: "later token"},
	} {
		h := newHistory()
		h.start, h.terms, h.writes = begin, c.terms, c.writes
		if err := h.checkTerms(); c.want == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.want, c.name)
		}
	}

	// Terms overlap if the channel Done of the earlier leadership is still open when the later term begins. They do
	// not overlap if Done is closed, even if endTerm was not called.
	h := newHistory()
	first, endFirst := candidacy.NewLeadership(1, nil)
	second, _ := candidacy.NewLeadership(2, nil)
	h.addTerm("a", "/e/a", first)
	endFirst(nil)
	h.addTerm("b", "/e/b", second)
	require.NoError(t, h.checkTerms())
	third, _ := candidacy.NewLeadership(3, nil)
	h.addTerm("c", "/e/c", third)
	require.ErrorContains(t, h.checkTerms(), "has not ended yet")
}
