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
)

// history is what happened in a run, by one clock for all candidates.
type history struct {
	start time.Time

	mu      sync.Mutex
	records []string
	terms   []*term
	writes  []fencedWrite
	written chan struct{} // closed and replaced at each write
}

// term is one leadership, from the moment at which its reader was told of it
// until its Done was closed.
type term struct {
	name, id string
	token    int64
	from     time.Time
	until    time.Time // zero while it lasts
	done     <-chan struct{}
}

func (l *term) String() string {
	return fmt.Sprintf("%s (%s, token %d)", l.name, l.id, l.token)
}

// fencedWrite is a transaction that a leader has carried out.
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

// addTerm records that a leadership was delivered, and returns its term. Terms
// whose Done is closed already have ended by now, whether or not somebody has
// come around to say so: what counts is what a reader could know.
func (h *history) addTerm(who, id string, l *leaderelection.Leadership) *term {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, open := range h.terms {
		if open.until.IsZero() && isClosed(open.done) {
			open.until = now
		}
	}
	t := &term{name: who, id: id, token: l.Token(), from: now, done: l.Done()}
	if isClosed(t.done) {
		t.until = now // over before it was read
	}
	h.terms = append(h.terms, t)
	h.addRecordAt(now, "%s LEADS with token %d as %s", who, t.token, id)
	return t
}

// endTerm records that a leadership's Done was seen closed.
func (h *history) endTerm(t *term, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if t.until.IsZero() {
		t.until = now
	}
	h.addRecordAt(now, "%s leads no longer: %v", t.name, why)
}

// addWrite records a fenced write.
func (h *history) addWrite(who string, token, zxid int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, fencedWrite{time.Now(), who, token, zxid})
	close(h.written)
	h.written = make(chan struct{})
}

// waitWriteAfter waits until somebody has carried out a fenced write of a
// transaction later than zxid.
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
			return fmt.Errorf("nobody has led within %v", limit)
		}
	}
}

// currentLeader is who leads now, "" for nobody.
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

// checkTerms says what is wrong with the history: terms that overlap, tokens that
// do not grow from one leader to the next, fenced writes of an earlier leader
// after those of a later one.
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
				fail("%v began to lead at %.3fs while %v has not ended yet", t, h.secondsAt(t.from), earlier)
			case earlier.until.After(t.from):
				fail("%v began to lead at %.3fs, %v before the end of %v", t, h.secondsAt(t.from), earlier.until.Sub(t.from), earlier)
			}
		}
		if i == 0 {
			continue
		}
		// One that was suspended comes back with the token it had.
		switch before := terms[i-1]; {
		case t.token < before.token, t.token == before.token && t.id != before.id:
			fail("%v has led after %v: the token did not grow", t, before)
		case t.token > before.token && t.id == before.id:
			fail("%v has led after %v: the same candidate's token has changed", t, before)
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

// TestHistoryCheckerFails feeds the checker histories with one fault each:
// what never fails proves nothing.
func TestHistoryCheckerFails(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	termOf := func(who string, token int64, from, until int) *term {
		l := &term{name: who, id: "/e/" + who, token: token, from: at(from), done: make(chan struct{})}
		if until > 0 {
			l.until = at(until)
		}
		return l
	}
	const forever = 0
	for _, c := range []struct {
		name   string
		terms  []*term
		writes []fencedWrite
		want   string // "" for a right history
	}{
		{name: "one after the other", terms: []*term{termOf("a", 1, 0, 2), termOf("b", 2, 3, forever)}},
		{name: "at the same instant", terms: []*term{termOf("a", 1, 0, 2), termOf("b", 2, 2, forever)}},
		{name: "suspended and proven again", terms: []*term{termOf("a", 1, 0, 2), termOf("a", 1, 3, 4), termOf("b", 2, 5, forever)}},
		{name: "overlap", terms: []*term{termOf("a", 1, 0, 3), termOf("b", 2, 2, forever)}, want: "before the end of a"},
		{name: "overlap with one that is not the last", terms: []*term{termOf("a", 1, 0, 9), termOf("b", 2, 1, 2), termOf("c", 3, 10, forever)}, want: "before the end of a"},
		{name: "the first has never ended", terms: []*term{termOf("a", 1, 0, forever), termOf("b", 2, 2, forever)}, want: "has not ended yet"},
		{name: "token shrinks", terms: []*term{termOf("a", 2, 0, 1), termOf("b", 1, 2, forever)}, want: "did not grow"},
		{name: "token used twice", terms: []*term{termOf("a", 1, 0, 1), termOf("b", 1, 2, forever)}, want: "did not grow"},
		{name: "token of a candidate changes", terms: []*term{termOf("a", 1, 0, 1), termOf("a", 2, 2, forever)}, want: "has changed"},
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

	// A grant that arrives while another one's Done is open is an overlap; one
	// that arrives after it was closed is none, even if nobody has said so.
	h := newHistory()
	first, endFirst := leaderelection.NewLeadership(1, nil)
	second, _ := leaderelection.NewLeadership(2, nil)
	h.addTerm("a", "/e/a", first)
	endFirst(nil)
	h.addTerm("b", "/e/b", second)
	require.NoError(t, h.checkTerms())
	third, _ := leaderelection.NewLeadership(3, nil)
	h.addTerm("c", "/e/c", third)
	require.ErrorContains(t, h.checkTerms(), "has not ended yet")
}
