package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// history is what has happened in one schedule.
type history struct {
	start time.Time

	mu         sync.Mutex
	lines      []string
	at         []time.Duration
	puts       map[string]error // by payload
	spans      []*span
	acks       map[string][]error       // by payload
	confirmed  map[string]time.Duration // when an acknowledgement was
	letters    map[string]int
	excused    map[int64]time.Duration // sessions
	violations []string
}

// span is one delivery: from when it was read until Done was closed.
type span struct {
	who, id, payload string
	token            int64
	attempt          int
	from, until      time.Duration
	over             bool
	session          int64
}

func (s *span) String() string {
	return fmt.Sprintf("%s has %s (%s, attempt %d, token %d, %v to %v)", s.who, s.payload, s.id, s.attempt, s.token, s.from, s.until)
}

func newHistory() *history {
	return &history{start: time.Now(), puts: map[string]error{}, acks: map[string][]error{}, confirmed: map[string]time.Duration{}, letters: map[string]int{}, excused: map[int64]time.Duration{}}
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(format, args...)
}

func (h *history) noteLocked(format string, args ...any) {
	h.at = append(h.at, h.now())
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func (h *history) violation(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
	h.noteLocked("VIOLATION: "+format, args...)
}

func (h *history) put(who, payload string, err error) {
	h.note("%s: put %s: %v", who, payload, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.puts[payload] = err
}

// delivered notes a delivery; end is called when Done is closed.
func (h *history) delivered(who string, i Item, ended func()) {
	s := &span{who: who, id: i.ID(), payload: string(i.Data()), token: i.Token(), attempt: i.Attempt(), session: i.d.session}
	h.mu.Lock()
	s.from = h.now()
	h.noteLocked("%v, err %v", s, i.Err())
	h.spans = append(h.spans, s)
	h.mu.Unlock()
	context.AfterFunc(i.Context(), func() {
		defer ended()
		h.mu.Lock()
		defer h.mu.Unlock()
		s.until, s.over = h.now(), true
		h.noteLocked("%s: done with %s: %v", who, s.payload, i.Err())
	})
}

// excuse notes that a session is being ended by force, while it could be proven to
// live. Until its client hears of that others may have what it has.
func (h *history) excuse(session int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.excused[session]; !known {
		h.excused[session] = h.now()
	}
}

func (h *history) isExcused(s *span, at time.Duration) bool {
	since, excused := h.excused[s.session]
	return excused && at >= since
}

func (h *history) acknowledged(who string, i Item, err error) {
	h.note("%s: ack %s: %v", who, i.Data(), err)
	h.mu.Lock()
	defer h.mu.Unlock()
	payload := string(i.Data())
	h.acks[payload] = append(h.acks[payload], err)
	if err == nil {
		h.confirmed[payload] = h.now()
	}
}

// counts are deliveries, acknowledgements, those that failed because the item was
// lost or unconfirmed, and dead letters.
func (h *history) counts() (n [5]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n[0] = len(h.spans)
	for _, acks := range h.acks {
		for _, err := range acks {
			switch {
			case err == nil:
				n[1]++
			case errors.Is(err, recipes.ErrUnconfirmed):
				n[3]++
			default:
				n[2]++
			}
		}
	}
	n[4] = len(h.letters)
	return n
}

// judge checks everything, given what was written once for each acknowledgement
// and what is left in the queue, which must be nothing.
func (h *history) judge(written map[string]int, s schedule) (violations []string) {
	found := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	deliveries := map[string][]*span{}
	for _, s := range h.spans {
		deliveries[s.payload] = append(deliveries[s.payload], s)
	}
	for payload, put := range h.puts {
		confirmed, unconfirmed := 0, 0
		for _, err := range h.acks[payload] {
			switch {
			case err == nil:
				confirmed++
			case errors.Is(err, recipes.ErrUnconfirmed):
				unconfirmed++
			}
		}
		ends := written[payload] + h.letters[payload]
		switch {
		case confirmed > 1:
			found("%s was acknowledged %d times", payload, confirmed)
		case written[payload] > 1:
			found("%s was acknowledged %d times, says ZooKeeper", payload, written[payload])
		case h.letters[payload] > 1:
			found("%s is %d dead letters", payload, h.letters[payload])
		case ends > 1:
			found("%s was acknowledged and is a dead letter", payload)
		case confirmed == 1 && written[payload] == 0:
			found("%s was acknowledged and what that writes is not there", payload)
		case written[payload] == 1 && confirmed == 0 && unconfirmed == 0:
			found("%s was acknowledged and nobody knows", payload)
		case put == nil && ends == 0:
			found("%s is lost", payload)
		case put != nil && !errors.Is(put, recipes.ErrUnconfirmed) && ends+len(deliveries[payload]) > 0:
			found("%s was put though Put said %v", payload, put)
		}
	}
	for payload, spans := range deliveries {
		for i, a := range spans {
			if a.id != spans[0].id {
				found("%s was put twice: %s and %s", payload, a.id, spans[0].id)
			}
			if s.config.MaxAttempts > 0 && a.attempt > s.config.MaxAttempts || a.attempt < 1 {
				found("%v: that is no attempt", a)
			}
			if at, confirmed := h.confirmed[payload]; confirmed && a.from > at && !h.isExcused(a, a.from) {
				found("%v, which was acknowledged at %v", a, at)
			}
			if !a.over {
				found("%v has not ended", a)
			}
			for _, b := range spans[i+1:] {
				if from := max(a.from, b.from); from < min(a.until, b.until) && !h.isExcused(a, from) && !h.isExcused(b, from) {
					found("%v and %v", a, b)
				}
				if b.from > a.from && b.token <= a.token && !h.isExcused(b, b.from) {
					found("%v, then %v: tokens do not grow", a, b)
				}
			}
		}
	}
	return violations
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for i, l := range h.lines {
		fmt.Fprintf(&b, "%12v  %s\n", h.at[i], l)
	}
	return b.String()
}
