package line

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Where a predecessor is of the same session, its end may be that of the session, and
// then the own znode has gone as well. ZooKeeper does not tell which it is. The
// predecessor does: it stands in this process, and says so once the ensemble has
// acknowledged that it has left.

// farewell is what those who wait for one znode's end share.
type farewell struct {
	waiting int
	said    chan struct{} // closed when the znode was deleted by its own contender
}

type farewellOf struct {
	conn *zk.Conn
	path string
}

var (
	farewellsMu sync.Mutex
	farewells   = map[farewellOf]*farewell{}
)

// expectFarewell begins to listen to the predecessor, where it is of the same session.
func (p *place) expectFarewell() {
	p.ignoreFarewell()
	if p.predecessorSeen.owner != p.session {
		return
	}
	farewellsMu.Lock()
	defer farewellsMu.Unlock()
	of := farewellOf{p.Conn, p.predecessorPath}
	f := farewells[of]
	if f == nil {
		f = &farewell{said: make(chan struct{})}
		farewells[of] = f
	}
	f.waiting++
	p.farewell, p.farewellOf = f, of
}

// ignoreFarewell ends that.
func (p *place) ignoreFarewell() {
	if p.farewell == nil {
		return
	}
	farewellsMu.Lock()
	defer farewellsMu.Unlock()
	if p.farewell.waiting--; p.farewell.waiting == 0 && farewells[p.farewellOf] == p.farewell {
		delete(farewells, p.farewellOf)
	}
	p.farewell = nil
}

// sayFarewell tells whoever waits for the own znode's end that it was deleted while
// the session lived.
func (p *place) sayFarewell() {
	farewellsMu.Lock()
	defer farewellsMu.Unlock()
	of := farewellOf{p.Conn, p.path()}
	if f := farewells[of]; f != nil {
		close(f.said)
		delete(farewells, of)
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
