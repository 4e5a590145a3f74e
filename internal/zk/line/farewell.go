package line

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
)

// Where a predecessor is of the same session, its end may be that of the session, and
// then the own znode has gone as well. ZooKeeper does not tell which it is. The
// predecessor does: it stands in this process, and says so once the ensemble has
// acknowledged that it has left.

// farewell is what those who wait for one znode's end share.
type farewell struct {
	path    string
	waiting int
	said    chan struct{} // closed when the znode was deleted by its own contender
}

// farewells are those of one connection, by the path of the znode.
type farewells struct {
	mu     sync.Mutex
	byPath map[string]*farewell
}

var farewellsOf = perconn.NewMap(func(*zk.Conn) *farewells { return &farewells{byPath: map[string]*farewell{}} })

// expectFarewell begins to listen to the predecessor, where it is of the same session.
func (p *place) expectFarewell() {
	p.ignoreFarewell()
	if p.predecessorSeen.owner != p.session {
		return
	}
	all := farewellsOf.Of(p.Conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	f := all.byPath[p.predecessorPath]
	if f == nil {
		f = &farewell{path: p.predecessorPath, said: make(chan struct{})}
		all.byPath[f.path] = f
	}
	f.waiting++
	p.farewell = f
}

// ignoreFarewell ends that.
func (p *place) ignoreFarewell() {
	f := p.farewell
	if f == nil {
		return
	}
	all := farewellsOf.Of(p.Conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	if f.waiting--; f.waiting == 0 && all.byPath[f.path] == f {
		delete(all.byPath, f.path)
	}
	p.farewell = nil
}

// sayFarewell tells whoever waits for the own znode's end that it was deleted while
// the session lived.
func (p *place) sayFarewell() {
	all := farewellsOf.Of(p.Conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	if f := all.byPath[p.path()]; f != nil {
		close(f.said)
		delete(all.byPath, f.path)
	}
}

// heardFarewell reports whether the predecessor, whose znode has gone, has said so
// itself. The acknowledgement comes right behind the event. It waits for a moment, as
// long as the connection is up: one that its owner closes takes everybody's znode, and
// must not be asked anything meanwhile (request.AwaitClosing).
func (p *place) heardFarewell(ctx context.Context) bool {
	if p.farewell == nil {
		return false
	}
	const interval = time.Millisecond
	for end := time.Now().Add(patience / 2); p.Conn.State() == zk.StateHasSession; {
		select {
		case <-p.farewell.said:
			return true
		case <-time.After(interval):
		case <-ctx.Done():
			return false
		}
		if !time.Now().Before(end) {
			return false
		}
	}
	return false
}
