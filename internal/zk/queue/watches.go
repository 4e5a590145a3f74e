package queue

import (
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

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
