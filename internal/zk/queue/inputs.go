package queue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// next waits for the next input. It returns the deletion of the contender's znode before any other input: another
// input, such as the deletion of the predecessor, could begin the turn of a contender whose znode is gone. The server
// sends the events of deletions in the order of the deletions.
func (d *driver) next(ctx context.Context) (f *frame) {
	switch {
	case d.deferred != nil:
		f, d.deferred = d.deferred, nil
	case d.proved:
		d.proved, f = false, input(contender.ConnChanged)
	case len(d.answered) > 0:
		r := d.answered[0]
		d.answered = d.answered[:copy(d.answered, d.answered[1:])]
		f = d.receive(r)
	case d.checkWatches:
		f = d.connChanged()
	default:
		f = d.wait(ctx)
	}
	return d.deliverOwnDeletionFirst(f)
}

// deliverOwnDeletionFirst returns f. If an event of the contender's znode has occurred, it returns this event
// instead, and f becomes the next input.
func (d *driver) deliverOwnDeletionFirst(f *frame) *frame {
	if f.in.Kind == contender.Fired && f.in.Watch == contender.OwnWatch {
		return f
	}
	select {
	case event := <-d.watches[ownSlot].watch.C():
		d.deferred = f
		return d.fired(ownSlot, event)
	default:
		return f
	}
}

// wait blocks until there is an input.
func (d *driver) wait(ctx context.Context) *frame {
	if d.waiting == 0 && d.requests != nil && !d.requests.hasFailed() {
		d.replies, d.requests = nil, nil // release the memory, because there are many idle contenders
	}
	select {
	case r := <-d.replies:
		d.waiting--
		return d.receive(r)
	case event := <-d.watches[ownSlot].watch.C():
		return d.fired(ownSlot, event)
	case event := <-d.watches[firstSlot].watch.C():
		return d.fired(firstSlot, event)
	case event := <-d.watches[secondSlot].watch.C():
		return d.fired(secondSlot, event)
	case <-d.sub.Changed():
		return d.connChanged()
	case <-d.schedule():
		return d.timerExpired()
	case r := <-d.renames():
		return d.startRename(r)
	case <-ctx.Done():
		return leaveInput(ctx)
	}
}

// connChanged returns the events of watches that have fired, and afterwards a change of the connection. The pool of
// watches reports lost watches only as a change of the connection. If a server has rejected a request of the monitor
// (State.Rejected), the contender leaves.
func (d *driver) connChanged() *frame {
	d.checkWatches = true
	for slot := range d.watches {
		if d.watches[slot].watch.Fired() {
			return d.fired(slot, zk.Event{})
		}
	}
	d.checkWatches = false
	f := input(contender.ConnChanged)
	if err := d.sub.State().Rejected; err != nil {
		f.in.Kind, f.in.Err = contender.Leave, err
	}
	return f
}

// renames returns the channel of requests for another name, or nil if the contender cannot be renamed at present.
func (d *driver) renames() <-chan Rename {
	if d.rename != nil || !d.machine.Holding() {
		return nil
	}
	return d.cfg.Renames
}

func (d *driver) timerExpired() *frame {
	f := input(contender.Expired)
	f.in.Timer = d.firstTimer().timer
	d.stopTimer(f.in.Timer)
	return f
}

func leaveInput(ctx context.Context) *frame {
	f := input(contender.Leave)
	f.in.Err = context.Cause(ctx)
	return f
}

// watched is a znode whose watch the driver waits for.
type watched struct {
	path  string // the path of the znode; empty for the queue
	watch *watch.Watch
	// departure tells whether the contender of the znode has deleted the znode itself. It is nil unless this
	// contender belongs to the same session.
	departure *departure
}

// The slots of the field driver.watches.
const (
	ownSlot   = iota // the contender's znode
	firstSlot        // this slot and secondSlot: up to two of the predecessor, the contender before it, and the queue
	secondSlot
	slots
)

// kind returns the kind of the watch in a slot.
func (d *driver) kind(slot int) contender.Watch {
	switch {
	case slot == ownSlot:
		return contender.OwnWatch
	case d.watches[slot].path == "":
		return contender.QueueWatch
	}
	return contender.OtherWatch
}

// fired returns the event of the watch in a slot, and drops the watch. received is what the channel of the watch
// has received.
func (d *driver) fired(slot int, received zk.Event) *frame {
	w := d.watches[slot]
	f := input(contender.Fired)
	f.in.Watch, f.in.Name, f.in.Err, f.in.Safe = d.kind(slot), nameOf(w.path), watch.Loss(w.watch.Take(received)), true
	if f.in.Watch == contender.OtherWatch && errors.Is(f.in.Err, connection.ErrDeleted) {
		if d.machine.IsPredecessor(f.in.Name) {
			d.observeDeparture()
		}
		// A contender of the same session announces the deletion of its znode when it receives the reply to its
		// delete, which follows the event immediately. Without the announcement, the owner of the connection may be
		// closing it, which deletes all znodes of the session. The connection is then down when Await returns; a
		// request that is sent earlier could hang (see connection.AwaitClosing).
		f.in.Safe = w.departure == nil || limit.Await(w.departure.announced, time.Now().Add(closingTime))
	}
	d.drop(&d.watches[slot])
	return f
}

// watchedBy returns the znode that a request has read. It replaces the name in the request by a part of the path,
// so that the machine and the watch keep the same string in memory.
func (d *driver) watchedBy(r *result) watched {
	r.request.Name = nameOf(r.path)
	return watched{path: r.path, watch: r.watch}
}

// nameOf returns the last element of a path, without copying it.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// keepWatch keeps a watch on another contender or on the queue. The watch replaces a watch on the same znode, or
// else a watch that is not needed.
func (d *driver) keepWatch(w watched) {
	kept, second := &d.watches[firstSlot], &d.watches[secondSlot]
	if same := kept.watch != nil && kept.path == w.path; !same && (second.watch == nil || second.path == w.path) {
		kept = second
	}
	d.drop(kept)
	*kept = w
}

// drop stops waiting for a watch. The watch stays in the pool of the connection.
func (d *driver) drop(w *watched) {
	ignoreDeparture(d.cfg.Conn, w.departure)
	*w = watched{}
}

// dropWatches drops the watches that the state machine does not wait for.
func (d *driver) dropWatches() {
	for slot := range d.watches {
		if w := &d.watches[slot]; w.watch != nil && !d.machine.Watches(d.kind(slot), nameOf(w.path)) {
			d.drop(w)
		}
	}
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

// An event does not show whether a contender has deleted its znode or whether the servers have deleted it with the
// session. If an earlier contender belongs to the same session, the second case means that the contender's own
// znode is deleted as well. Therefore the earlier contender, which runs in this process, announces its departure
// after the servers have acknowledged the deletion.

// departure is the expected departure of an earlier contender of the same session. All contenders that wait for
// this departure share one value.
type departure struct {
	path      string
	waiting   int
	announced chan struct{} // closed when the contender itself has deleted its znode
}

// departures contains the departures that contenders wait for, by the path of the znode of the earlier contender.
var departures = connection.NewTables[string, *departure]()

// expectDeparture registers for the announcement of an earlier contender of the same session, until
// ignoreDeparture.
func expectDeparture(conn *zk.Conn, path string) *departure {
	all := departures.Lock(conn)
	defer all.Unlock()
	d := all.Entries[path]
	if d == nil {
		d = &departure{path: path, announced: make(chan struct{})}
		all.Entries[path] = d
	}
	d.waiting++
	return d
}

// ignoreDeparture ends the registration of expectDeparture. d may be nil.
func ignoreDeparture(conn *zk.Conn, d *departure) {
	if d == nil {
		return
	}
	all := departures.Lock(conn)
	defer all.Unlock()
	if d.waiting--; d.waiting == 0 && all.Entries[d.path] == d {
		delete(all.Entries, d.path)
	}
}

// announceDeparture announces that a contender has deleted its znode while its session existed.
func announceDeparture(conn *zk.Conn, path string) {
	all := departures.Lock(conn)
	defer all.Unlock()
	if d := all.Entries[path]; d != nil {
		close(d.announced)
		delete(all.Entries, path)
	}
}
