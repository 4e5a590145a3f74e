package cache

import (
	"reflect"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// nodeWatch is a watch on a part of a node, which other users of the connection share. Only the
// updater uses its fields, except for shared.
type nodeWatch struct {
	node     *node
	kind     partKind
	shared   *watch.Watch
	hasFired bool // the updater has handled the event
	waiter   *waiter
}

// firedWatch is a watch that has fired, and its event.
type firedWatch struct {
	watch *nodeWatch
	event zk.Event
}

// poll returns the event of the watch if it has fired, and does not wait.
func (w *nodeWatch) poll() (event zk.Event, fired bool) {
	if !w.shared.Fired() {
		return zk.Event{}, false
	}
	return w.shared.Take(zk.Event{}), true
}

// maxWatches is the maximum number of watches of a waiter. When one of them fires, the waiter polls
// all of them, which takes some microseconds. A goroutine for each watch would need more memory.
const maxWatches = 64

// watchSet waits for all watches of a cache. Only the updater calls its methods.
type watchSet struct {
	fired      *mailbox[firedWatch]
	stopping   chan struct{}
	running    sync.WaitGroup
	waiters    []*waiter
	notFull    []*waiter
	unassigned []*nodeWatch // watches that no goroutine waits for yet
}

func newWatchSet() *watchSet {
	return &watchSet{fired: newMailbox[firedWatch](), stopping: make(chan struct{})}
}

// add adds a watch. It is waited for after the next call of assign.
func (s *watchSet) add(w *nodeWatch) { s.unassigned = append(s.unassigned, w) }

// assign assigns the watches that were added to waiters. If more watches will follow, it fills
// whole waiters only, because a waiter polls all of its watches whenever it receives some.
func (s *watchSet) assign(more bool) {
	for len(s.unassigned) >= maxWatches {
		s.assignTo(s.newWaiter(), maxWatches)
	}
	if more || len(s.unassigned) == 0 {
		return
	}
	for len(s.unassigned) > 0 {
		if len(s.notFull) == 0 {
			s.notFull = append(s.notFull, s.newWaiter())
		}
		x := s.notFull[len(s.notFull)-1]
		if s.assignTo(x, min(maxWatches-x.size, len(s.unassigned))); x.size == maxWatches {
			s.notFull = s.notFull[:len(s.notFull)-1]
		}
	}
	s.unassigned = nil
}

func (s *watchSet) newWaiter() *waiter {
	x := &waiter{added: newMailbox[*nodeWatch](), retired: make(chan struct{})}
	s.waiters = append(s.waiters, x)
	s.running.Go(func() { x.run(s.stopping, s.fired) })
	return x
}

// assignTo assigns the first n unassigned watches to a waiter.
func (s *watchSet) assignTo(x *waiter, n int) {
	for _, w := range s.unassigned[:n] {
		w.waiter = x
	}
	x.added.put(s.unassigned[:n]...)
	x.size += n
	s.unassigned = s.unassigned[n:]
}

// poll makes all waiters poll their watches: the pool has fired some whose events were lost, and
// their channels receive nothing.
func (s *watchSet) poll() {
	for _, x := range s.waiters {
		x.added.put(nil)
	}
}

// release is called for each watch that a waiter has added to fired. Waiters without watches end,
// except for one.
func (s *watchSet) release(w *nodeWatch) {
	x := w.waiter
	if x.size == maxWatches {
		s.notFull = append(s.notFull, x)
	}
	if x.size--; x.size == 0 && len(s.notFull) > 1 {
		close(x.retired)
		isX := func(y *waiter) bool { return y == x }
		s.notFull, s.waiters = slices.DeleteFunc(s.notFull, isX), slices.DeleteFunc(s.waiters, isX)
	}
}

// stop ends all waiters.
func (s *watchSet) stop() {
	close(s.stopping)
	s.running.Wait()
}

// waiter is a goroutine that waits for up to maxWatches watches.
type waiter struct {
	added   *mailbox[*nodeWatch] // nil for a poll
	retired chan struct{}
	size    int // the number of watches that are assigned to it; used by the updater

	watches []*nodeWatch // used by the goroutine
}

// run reports each watch that fires to fired, until stopping or x.retired is closed.
func (x *waiter) run(stopping <-chan struct{}, fired *mailbox[firedWatch]) {
	receive := func(c any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	cases := []reflect.SelectCase{receive(stopping), receive(x.retired), receive(x.added.ready)}
	const first = 3 // the index of the case of the first watch
	for {
		chosen, value, _ := reflect.Select(cases)
		var found []firedWatch
		switch {
		case chosen < 2:
			return
		case chosen == 2:
			poll := false
			for _, w := range x.added.take() {
				if poll = poll || w == nil; w != nil {
					x.watches, cases = append(x.watches, w), append(cases, receive(w.shared.C()))
				}
			}
			if !poll {
				continue
			}
		default:
			event, _ := value.Interface().(zk.Event)
			w := x.watches[chosen-first]
			found = append(found, firedWatch{w, w.shared.Take(event)})
		}
		// A break of the connection fires many watches at the same time.
		kept := 0
		for i, w := range x.watches {
			if i == chosen-first {
				continue
			}
			if event, isFired := w.poll(); isFired {
				found = append(found, firedWatch{w, event})
				continue
			}
			x.watches[kept], cases[first+kept] = w, cases[first+i]
			kept++
		}
		clear(x.watches[kept:])
		clear(cases[first+kept:])
		x.watches, cases = x.watches[:kept], cases[:first+kept]
		fired.put(found...)
	}
}
