package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// watched is a znode with a watch.
type watched struct {
	path  string
	watch *watch.Watch
	// departure is set if the znode belongs to another contender of the same session.
	departure *departure
}

// watchedBy returns the znode that a request has read, and makes the name in the request a part
// of its path: the machine and the watch then keep the same string.
func (d *driver) watchedBy(r *result) watched {
	r.request.Name = nameOf(r.path)
	return watched{path: r.path, watch: r.watch}
}

// nameOf returns the last element of a path, as a part of it.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// keepWatch keeps a watch on another contender. It replaces a watch on the same znode, or else a
// watch that the state machine does not need any more.
func (d *driver) keepWatch(w watched) {
	slot := 0
	for i := range d.others {
		switch o := &d.others[i]; {
		case o.path == w.path:
			slot = i
		case o.watch == nil && d.others[slot].path != w.path:
			slot = i
		}
	}
	d.drop(&d.others[slot])
	d.others[slot] = w
}

// drop drops a watch.
func (d *driver) drop(w *watched) {
	ignoreDeparture(d.cfg.Conn, w.departure)
	*w = watched{}
}

// dropWatches drops the watches that the state machine does not wait for. They stay in the
// pool of the connection.
func (d *driver) dropWatches() {
	for i := range d.others {
		if o := &d.others[i]; o.watch != nil && !d.machine.Watches(nameOf(o.path)) {
			d.drop(o)
		}
	}
	if d.queue != nil && !d.machine.WatchesQueue() {
		d.queue = nil
	}
}

// eventOf translates the event of a watch.
func eventOf(event zk.Event) contender.Event {
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return contender.ConnClosed
	case event.Type == zk.EventNotWatching:
		return contender.SessionOver
	case event.Type == zk.EventNodeDeleted:
		return contender.Deleted
	}
	return contender.Changed
}

func (d *driver) observeWatch(path string) {
	if d.cfg.Observer != nil && !d.machine.Leaving() {
		d.cfg.Observer.Watched(path)
	}
}

func (d *driver) observeDeparture() {
	if d.cfg.Observer != nil && !d.machine.Leaving() {
		d.cfg.Observer.Vacated()
	}
}

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
