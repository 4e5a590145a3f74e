package cache

import (
	"reflect"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// nodeWatch is a watch on the data of a node or on the list of its children. It shares a watch of the connection
// with other users. Only the updater uses its fields, except shared.
type nodeWatch struct {
	node     *node
	kind     partKind
	shared   *watch.Watch
	hasFired bool // reports that the updater has handled the event of the watch
	waiter   *watchWaiter
}

// firedWatch is a watch that has fired, and its event.
type firedWatch struct {
	watch *nodeWatch
	event zk.Event
}

// poll returns the event of the watch if it has fired, without waiting.
func (w *nodeWatch) poll() (event zk.Event, fired bool) {
	if !w.shared.Fired() {
		return zk.Event{}, false
	}
	return w.shared.Take(zk.Event{}), true
}

// maxWatches is the number of watches that one waiter can have. When one of them fires, the waiter polls all of
// them, which takes some microseconds. One goroutine for each watch would need more memory.
const maxWatches = 64

// watchSet waits for all watches of a cache. Only the updater may call its methods.
type watchSet struct {
	fired      *mailbox[firedWatch]
	stopping   chan struct{}
	running    sync.WaitGroup
	waiters    []*watchWaiter
	notFull    []*watchWaiter
	unassigned []*nodeWatch // the watches that no goroutine waits for yet
}

func newWatchSet() *watchSet {
	return &watchSet{fired: newMailbox[firedWatch](), stopping: make(chan struct{})}
}

// add adds a watch. A waiter waits for the watch after the next call of assign.
func (s *watchSet) add(w *nodeWatch) { s.unassigned = append(s.unassigned, w) }

// assign distributes the added watches among the waiters. more announces that further watches will follow: then
// assign fills only whole waiters, because a waiter polls all of its watches whenever it receives new ones.
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

func (s *watchSet) newWaiter() *watchWaiter {
	x := &watchWaiter{added: newMailbox[*nodeWatch](), retired: make(chan struct{})}
	s.waiters = append(s.waiters, x)
	s.running.Go(func() { x.run(s.stopping, s.fired) })
	return x
}

// assignTo assigns the first n unassigned watches to the waiter x.
func (s *watchSet) assignTo(x *watchWaiter, n int) {
	for _, w := range s.unassigned[:n] {
		w.waiter = x
	}
	x.added.addItems(s.unassigned[:n]...)
	x.size += n
	s.unassigned = s.unassigned[n:]
}

// poll makes all waiters poll their watches. It must be called when the connection has marked watches as fired
// because their events were lost: the channels of such watches receive nothing.
func (s *watchSet) poll() {
	for _, x := range s.waiters {
		x.added.addItems(nil)
	}
}

// release must be called for each watch that a waiter has reported. It ends a waiter that has no watches,
// unless it is the only one.
func (s *watchSet) release(w *nodeWatch) {
	x := w.waiter
	if x.size == maxWatches {
		s.notFull = append(s.notFull, x)
	}
	if x.size--; x.size == 0 && len(s.notFull) > 1 {
		close(x.retired)
		isX := func(y *watchWaiter) bool { return y == x }
		s.notFull, s.waiters = slices.DeleteFunc(s.notFull, isX), slices.DeleteFunc(s.waiters, isX)
	}
}

// stop ends all waiters.
func (s *watchSet) stop() {
	close(s.stopping)
	s.running.Wait()
}

// watchWaiter is a goroutine that waits for up to maxWatches watches.
type watchWaiter struct {
	added   *mailbox[*nodeWatch] // receives the watches that are assigned to the waiter; nil requests a poll
	retired chan struct{}
	size    int // number of watches that are assigned; only the updater uses it

	watches []*nodeWatch // only the waiter's goroutine uses it
}

// run reports each watch that fires to fired, until stopping or x.retired is closed.
func (x *watchWaiter) run(stopping <-chan struct{}, fired *mailbox[firedWatch]) {
	receive := func(c any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	cases := []reflect.SelectCase{receive(stopping), receive(x.retired), receive(x.added.ready)}
	const first = 3 // the index of the first watch in the cases of the select
	for {
		chosen, value, _ := reflect.Select(cases)
		var found []firedWatch
		switch {
		case chosen < 2:
			return
		case chosen == 2:
			poll := false
			for _, w := range x.added.takeItems() {
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
		// A break of the connection fires many watches together, so check all of them.
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
		fired.addItems(found...)
	}
}
