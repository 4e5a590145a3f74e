package line

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// lister shares listings of one line among the contenders on one connection:
// when hundreds come at once, each needs a listing sent after its own create,
// not one of its own. Whoever asks while one is under way gets the next, which
// is sent when that one is answered. A contender alone is not delayed.
type lister struct {
	conn *zk.Conn
	dir  string
}

// round is a listing that was not sent yet or is under way.
type round struct {
	done    chan struct{} // closed when listing is set
	listing request.Answer[listing]
}

var (
	roundsMu sync.Mutex
	next     = map[lister]*round{} // joined by whoever asks; nil while none waits
	busy     = map[lister]bool{}   // a listing is under way
)

// shared returns a listing that was sent after the call. Its children belong
// to all who get it: they must not be changed.
func (l lister) shared() (listing, error) {
	roundsMu.Lock()
	if !busy[l] {
		// Nobody to share with. It is sent from here: another goroutine on the way
		// is time that a contender stands in line.
		busy[l] = true
		roundsMu.Unlock()
		r := &round{}
		l.send(r)
		roundsMu.Lock()
		if next[l] == nil {
			delete(busy, l)
		} else {
			go l.run()
		}
		roundsMu.Unlock()
		return r.listing.Value, r.listing.Err
	}
	r := next[l]
	if r == nil {
		r = &round{done: make(chan struct{})}
		next[l] = r
	}
	roundsMu.Unlock()
	<-r.done
	return r.listing.Value, r.listing.Err
}

// run sends listings for as long as somebody asks for one.
func (l lister) run() {
	for {
		roundsMu.Lock()
		r := next[l]
		delete(next, l)
		if r == nil {
			delete(busy, l)
			roundsMu.Unlock()
			return
		}
		roundsMu.Unlock()
		l.send(r)
		close(r.done)
	}
}

func (l lister) send(r *round) {
	r.listing.Value.children, r.listing.Value.stat, r.listing.Err = l.conn.Children(l.dir)
}
