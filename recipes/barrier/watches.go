package barrier

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches are those that were set and have not fired, by znode: the client library
// cannot take them back, so a call uses what an earlier one has left. As with any that
// nobody has looked at, the client may have given one up when the connection broke:
// whoever uses one again reads again when its doubt fires.
type watches struct {
	mu      sync.Mutex
	pending map[string]<-chan zk.Event
}

// of is the watch on node that has not fired, nil if there is none.
func (w *watches) of(node string) <-chan zk.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune()
	return w.pending[node]
}

// keep is told of a watch that was set.
func (w *watches) keep(node string, watch <-chan zk.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune()
	if watch != nil {
		if w.pending == nil {
			w.pending = map[string]<-chan zk.Event{}
		}
		w.pending[node] = watch
	}
}

// prune drops those that have fired; after its event such a channel is closed.
func (w *watches) prune() {
	for node, watch := range w.pending {
		select {
		case <-watch:
			delete(w.pending, node)
		default:
		}
	}
}

// forget drops all: they may never fire.
func (w *watches) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.pending)
}
