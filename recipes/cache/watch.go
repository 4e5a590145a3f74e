package cache

import (
	"reflect"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// watchKind is what a watch of the client library waits for.
type watchKind uint8

const (
	dataWatch  watchKind = iota // the znode's data, and its end
	existWatch                  // the creation of what is not there
	childWatch                  // the znode's children, and its end
)

// aspect names what of a znode is to be read again when such a watch fires, by the
// kind of watch that reading it sets: the data or the children.
func (k watchKind) aspect() watchKind {
	if k == existWatch {
		return dataWatch
	}
	return k
}

// watch is a watch of the connection that this cache has not seen to fire. Its fields
// are the owner's, except shared.
type watch struct {
	n      *znode
	kind   watchKind
	shared *shared.Watch
	fired  bool
	group  *waiter
}

// firing is a watch that has fired.
type firing struct {
	w     *watch
	event zk.Event
}

// poll reports whether the watch has fired, and returns its event.
func (w *watch) poll() (event zk.Event, fired bool) {
	if !w.shared.Fired() {
		return zk.Event{}, false
	}
	return w.shared.Take(zk.Event{}), true
}

// perWaiter is how many watches share a goroutine. Each that fires costs it a look
// at all of them, some microseconds; a goroutine for each would cost memory.
const perWaiter = 64

// watches waits for all watches of a cache. Its methods are the owner's.
type watches struct {
	fired   *mailbox[firing]
	stop    chan struct{}
	running sync.WaitGroup
	waiters []*waiter
	roomy   []*waiter // those with room
	added   []*watch  // with no waiter yet
}

func newWatches() *watches {
	return &watches{fired: newMailbox[firing](), stop: make(chan struct{})}
}

// add has w waited for from the next flush on.
func (p *watches) add(w *watch) { p.added = append(p.added, w) }

// flush hands what was added to waiters. While there is much to come it hands over
// full loads only: each costs a waiter a look at all it has.
func (p *watches) flush(more bool) {
	for len(p.added) >= perWaiter {
		p.load(p.newWaiter(), perWaiter)
	}
	if more || len(p.added) == 0 {
		return
	}
	for len(p.added) > 0 {
		if len(p.roomy) == 0 {
			p.roomy = append(p.roomy, p.newWaiter())
		}
		g := p.roomy[len(p.roomy)-1]
		if p.load(g, min(perWaiter-g.size, len(p.added))); g.size == perWaiter {
			p.roomy = p.roomy[:len(p.roomy)-1]
		}
	}
	p.added = nil
}

func (p *watches) newWaiter() *waiter {
	g := &waiter{in: newMailbox[*watch](), retired: make(chan struct{})}
	p.waiters = append(p.waiters, g)
	p.running.Go(func() { g.run(p.stop, p.fired) })
	return g
}

// load hands the first k of those added to g.
func (p *watches) load(g *waiter, k int) {
	for _, w := range p.added[:k] {
		w.group = g
	}
	g.in.put(p.added[:k]...)
	g.size += k
	p.added = p.added[k:]
}

// released notes that the waiter of w has no more to do with it.
func (p *watches) released(w *watch) {
	g := w.group
	if g.size == perWaiter {
		p.roomy = append(p.roomy, g)
	}
	if g.size--; g.size == 0 && len(p.roomy) > 1 {
		close(g.retired)
		same := func(x *waiter) bool { return x == g }
		p.roomy, p.waiters = slices.DeleteFunc(p.roomy, same), slices.DeleteFunc(p.waiters, same)
	}
}

// end ends the waiting.
func (p *watches) end() {
	close(p.stop)
	p.running.Wait()
}

// waiter is a goroutine that waits for up to perWaiter watches.
type waiter struct {
	in      *mailbox[*watch]
	retired chan struct{}
	size    int // the owner's: how many it has or is about to get

	watches []*watch // the goroutine's
}

func (g *waiter) run(stop <-chan struct{}, fired *mailbox[firing]) {
	receive := func(c any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	cases := []reflect.SelectCase{receive(stop), receive(g.retired), receive(g.in.ready)}
	control := len(cases)
	for {
		chosen, value, _ := reflect.Select(cases)
		switch {
		case chosen < 2:
			return
		case chosen == 2:
			for _, w := range g.in.take() {
				g.watches, cases = append(g.watches, w), append(cases, receive(w.shared.C()))
			}
			continue
		}
		// A break of the connection fires many at once.
		event, _ := value.Interface().(zk.Event)
		w := g.watches[chosen-control]
		found := []firing{{w, w.shared.Take(event)}}
		keep := 0
		for i, w := range g.watches {
			if i == chosen-control {
				continue
			}
			if event, is := w.poll(); is {
				found = append(found, firing{w, event})
				continue
			}
			g.watches[keep], cases[control+keep] = w, cases[control+i]
			keep++
		}
		clear(g.watches[keep:])
		clear(cases[control+keep:])
		g.watches, cases = g.watches[:keep], cases[:control+keep]
		fired.put(found...)
	}
}
