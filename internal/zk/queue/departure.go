package queue

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// If an earlier contender belongs to the same session, its znode may have been deleted because the
// session has expired, and then the contender's znode was deleted as well. The event does not show
// the cause. But the earlier contender belongs to this process, and announces its departure after
// the servers have acknowledged the deletion.

// departure is shared by the contenders that wait for one departure.
type departure struct {
	path      string
	waiting   int
	announced chan struct{} // closed when the znode was deleted by its own contender
}

// departures are those of one connection, by the path of the znode.
type departures struct {
	mu     sync.Mutex
	byPath map[string]*departure
}

var departuresOf = connection.NewMap(func(*zk.Conn) *departures { return &departures{byPath: map[string]*departure{}} })

// expectDeparture waits for the announcement of a contender of the same session from now on,
// until ignoreDeparture.
func expectDeparture(conn *zk.Conn, path string) *departure {
	all := departuresOf.Of(conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	d := all.byPath[path]
	if d == nil {
		d = &departure{path: path, announced: make(chan struct{})}
		all.byPath[path] = d
	}
	d.waiting++
	return d
}

// ignoreDeparture ends the wait for an announcement. d may be nil.
func ignoreDeparture(conn *zk.Conn, d *departure) {
	if d == nil {
		return
	}
	all := departuresOf.Of(conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	if d.waiting--; d.waiting == 0 && all.byPath[d.path] == d {
		delete(all.byPath, d.path)
	}
}

// announceDeparture reports that a contender has deleted its znode while the session was
// alive.
func announceDeparture(conn *zk.Conn, path string) {
	all := departuresOf.Of(conn)
	all.mu.Lock()
	defer all.mu.Unlock()
	if d := all.byPath[path]; d != nil {
		close(d.announced)
		delete(all.byPath, path)
	}
}

// heardDeparture reports whether a contender, whose znode was deleted, has announced its
// departure. The acknowledgement arrives right after the event. heardDeparture waits for a
// moment, as long as the connection is up: if its owner closes the connection, all znodes of
// the session are deleted, and no request must be sent in the meantime
// (connection.AwaitClosing).
func heardDeparture(ctx context.Context, conn *zk.Conn, d *departure) bool {
	const interval = time.Millisecond
	for end := time.Now().Add(closingTime); conn.State() == zk.StateHasSession; {
		select {
		case <-d.announced:
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
