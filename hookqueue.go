package leaderelection

import (
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/limit"
)

// maxHooked is how many events wait for hooks.
const maxHooked = 64

// hookQueue calls hooks from a goroutine that lives while there is something to
// call: a candidate at rest has none.
type hookQueue struct {
	hooks    []Hooks
	election string

	mu      sync.Mutex
	waiting []hooked // oldest first
	missed  int
	calling chan struct{} // closed when the goroutine has nothing more to call; nil without one
	last    bool          // nothing is taken any more
	over    bool          // nothing is called any more
}

type hooked struct {
	kind hookKind
	HookEvent
}

// add has hooks called for an event, after all that came before it.
func (q *hookQueue) add(kind hookKind, event HookEvent) {
	if !slices.ContainsFunc(q.hooks, func(h Hooks) bool { return kind.of(&h) != nil }) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last {
		return
	}
	if len(q.waiting) == maxHooked {
		victim := max(0, slices.IndexFunc(q.waiting, func(h hooked) bool { return h.kind.counted() }))
		q.waiting = slices.Delete(q.waiting, victim, victim+1)
		q.missed++
	}
	q.waiting = append(q.waiting, hooked{kind, event})
	if q.calling == nil {
		q.calling = make(chan struct{})
		go q.call()
	}
}

// call calls hooks until nothing waits.
func (q *hookQueue) call() {
	done := false
	defer func() {
		if !done { // a hook has ended its goroutine, as a failing test does
			go q.call()
		}
	}()
	for {
		next, ok := q.next()
		if !ok {
			break
		}
		for i := range q.hooks {
			if f := next.kind.of(&q.hooks[i]); f != nil && !q.isOver() {
				f(next.HookEvent)
			}
		}
	}
	done = true
}

// next takes what is to be called next; without that the goroutine has to end.
func (q *hookQueue) next() (hooked, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.missed == 0 && len(q.waiting) == 0:
		q.waiting = nil // at rest it needs no memory
		close(q.calling)
		q.calling = nil
		return hooked{}, false
	case q.missed > 0:
		event := HookEvent{Time: time.Now(), Election: q.election, Missed: q.missed}
		q.missed = 0
		return hooked{missedHook, event}, true
	}
	next := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return next, true
}

func (q *hookQueue) isOver() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.over
}

// finish takes no more events and waits until the hooks were called, for
// limit.Confirm at most. None is called after it.
func (q *hookQueue) finish() {
	q.mu.Lock()
	q.last = true
	calling := q.calling
	q.mu.Unlock()
	if calling != nil {
		timer := time.NewTimer(limit.Confirm)
		defer timer.Stop()
		select {
		case <-calling:
		case <-timer.C:
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
}
