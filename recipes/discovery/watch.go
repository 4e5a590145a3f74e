package discovery

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
)

// watcher belongs to a provider's goroutine.
type watcher struct {
	p      *Provider
	first  chan<- error
	nodes  map[string]*node
	pzxid  int64  // of the service's node when it was listed; 0 where there is none
	czxid  int64  // likewise
	armed  uint64 // the watch for the service's node, 0 for none
	number uint64 // of the watch that was set last
	list   List
	told   bool

	events   chan fired
	watching sync.WaitGroup // the goroutines that wait for watches
}

// node is an instance's znode as it was read last.
type node struct {
	read
	armed uint64 // its watch, 0 for none
}

// fired is an event of a watch.
type fired struct {
	name   string // "" for the service's node
	armed  uint64
	closed bool
}

// tooManyPause is the time between tries to list what does not fit.
const tooManyPause = 10 * time.Second

func (w *watcher) run() {
	p := w.p
	defer close(p.over)
	defer close(p.changes)
	defer p.sub.Close()
	defer w.watching.Wait()
	defer p.stop()
	err := sentinel.Refine(w.watch())
	if p.ctx.Err() != nil {
		p.mu.Lock()
		p.end = ErrClosed
		p.mu.Unlock()
		return
	}
	if !w.told {
		w.first <- err
		return
	}
	w.p.at.Log.Warn("provider ended", "path", p.dir, "error", err)
	w.list.Err = err
	p.publish(w.list, err)
}

// watch keeps the list the newest until something ends that.
func (w *watcher) watch() error {
	p := w.p
	epoch := p.sub.State().Epoch
	for all := false; ; { // whether everything is to be asked for again
		err := w.refresh(all)
		var again <-chan time.Time
		switch {
		case errors.Is(err, ErrTooMany) && w.told:
			w.tell(err)
			again = time.After(tooManyPause)
			epoch = p.sub.State().Epoch // it was the listing that broke the connection
		case err != nil:
			return err
		default:
			w.tell(nil)
		}
		for wait := true; wait; {
			select {
			case event := <-w.events:
				if event.closed {
					return sentinel.ErrConnClosed
				}
				wait = !w.note(event)
			case <-p.sub.Changed():
				state := p.sub.State()
				if state.Closed {
					return sentinel.ErrConnClosed
				}
				wait = state.Epoch == epoch
			case <-again:
				wait = false
			case <-p.ctx.Done():
				return context.Cause(p.ctx)
			}
		}
		// What comes at once is one change.
		for more := true; more; {
			select {
			case event := <-w.events:
				if event.closed {
					return sentinel.ErrConnClosed
				}
				w.note(event)
			default:
				more = false
			}
		}
		w.awaitClosing()
		now := p.sub.State().Epoch
		all, epoch = now != epoch, now
	}
}

// awaitClosing waits for a moment if the reason of an event may be that the owner is
// closing the connection, which deletes what this session has registered.
func (w *watcher) awaitClosing() {
	session := w.p.at.Conn.SessionID()
	for _, n := range w.nodes {
		if n.stat != nil && n.stat.EphemeralOwner == session && session != 0 && (n.armed == 0 || w.armed == 0) {
			request.AwaitClosing(w.p.ctx, w.p.at.Conn, request.ClosingTime)
			return
		}
	}
}

// note notes that a watch has fired, and returns whether it is one that counts.
func (w *watcher) note(event fired) bool {
	if event.name == "" {
		if event.armed != w.armed {
			return false
		}
		w.armed = 0
		return true
	}
	n := w.nodes[event.name]
	if n == nil || n.armed != event.armed {
		return false
	}
	n.armed = 0
	return true
}

// arm waits for a watch in a goroutine of its own and returns the watch's number.
func (w *watcher) arm(name string, watch <-chan zk.Event) uint64 {
	w.number++
	number := w.number
	w.watching.Go(func() {
		select {
		case event := <-watch:
			select {
			case w.events <- fired{name, number, errors.Is(event.Err, zk.ErrClosing)}:
			case <-w.p.ctx.Done():
			}
		case <-w.p.ctx.Done():
		}
	})
	return number
}

// refresh reads what has changed. With all it asks for everything: watches may have
// been lost with the connection, so they are not relied on, and not set again where
// they have nothing missed.
func (w *watcher) refresh(all bool) error {
	ctx, conn := w.p.ctx, w.p.at.Conn
	if all {
		// The server of now may lag behind that of before.
		if _, err := request.Read(ctx, conn, func() (string, error) { return conn.Sync(w.p.dir) }); err != nil {
			return err
		}
	}
	names := slices.Collect(maps.Keys(w.nodes))
	if all || w.armed == 0 {
		l, err := w.look()
		if err != nil {
			return err
		}
		names = l.names
		gone := maps.Clone(w.nodes)
		for _, name := range names {
			delete(gone, name)
		}
		for name := range gone {
			delete(w.nodes, name)
		}
	}
	slices.Sort(names)
	var due []string
	for _, name := range names {
		if n := w.nodes[name]; n == nil || n.armed == 0 || all {
			due = append(due, name)
		}
	}
	found := make([]read, len(due))
	parallel(len(due), func(i int) {
		was, node := w.nodes[due[i]], path.Join(w.p.dir, due[i])
		if was != nil && was.armed != 0 {
			exists, err := request.Read(ctx, conn, func() (bool, error) {
				exists, stat, err := conn.Exists(node)
				return exists && stat.Czxid == was.stat.Czxid && stat.Mzxid == was.stat.Mzxid, err
			})
			if exists || err != nil {
				found[i] = read{stat: was.stat, err: err}
				return
			}
		}
		found[i] = readInstance(ctx, conn, node, true)
	})
	for i, name := range due {
		switch f := found[i]; {
		case errors.Is(f.err, zk.ErrNoNode):
			delete(w.nodes, name) // the watch of the service's node tells, too
		case f.err != nil && !f.told:
			return f.err
		case f.err == nil && f.watch == nil: // as it was
		default:
			n := &node{read: f}
			if f.watch != nil {
				n.armed = w.arm(name, f.watch)
			}
			w.nodes[name] = n
		}
	}
	return nil
}

// look lists the service's node, and sets a watch for it if there is none that can
// be relied on.
func (w *watcher) look() (listing, error) {
	ctx, conn, dir := w.p.ctx, w.p.at.Conn, w.p.dir
	for {
		if w.armed != 0 {
			l, err := list(ctx, conn, dir, func() (listing, error) {
				names, stat, err := conn.Children(dir)
				return listing{names: names, stat: stat}, err
			})
			switch {
			case errors.Is(err, zk.ErrNoNode) && w.czxid == 0:
				return listing{}, nil
			case err == nil && l.stat.Czxid == w.czxid && l.stat.Pzxid == w.pzxid:
				return l, nil
			case err != nil && !errors.Is(err, zk.ErrNoNode):
				return l, err
			}
			w.armed = 0
		}
		l, err := list(ctx, conn, dir, func() (l listing, err error) {
			l.names, l.stat, l.watch, err = conn.ChildrenW(dir)
			return l, err
		})
		switch {
		case err == nil:
			w.czxid, w.pzxid = l.stat.Czxid, l.stat.Pzxid
			w.armed = w.arm("", l.watch)
			return l, nil
		case !errors.Is(err, zk.ErrNoNode):
			return l, err
		}
		type answer struct {
			exists bool
			watch  <-chan zk.Event
		}
		a, err := request.Read(ctx, conn, func() (a answer, err error) {
			a.exists, _, a.watch, err = conn.ExistsW(dir)
			return a, err
		})
		if err != nil {
			return listing{}, err
		}
		w.czxid, w.pzxid = 0, 0
		w.armed = w.arm("", a.watch)
		if !a.exists {
			return listing{}, nil
		}
		w.armed = 0
	}
}

// tell publishes the list if it has changed.
func (w *watcher) tell(err error) {
	was := w.list
	w.list = List{Err: err}
	same := w.told && errors.Is(was.Err, err) && errors.Is(err, was.Err)
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		switch n := w.nodes[name]; {
		case n.err != nil:
			u := n.unreadable(path.Join(w.p.dir, name))
			w.list.Unreadable = append(w.list.Unreadable, u)
		case !n.instance.Disabled:
			w.list.Instances = append(w.list.Instances, n.instance)
		}
	}
	same = same && slices.EqualFunc(was.Instances, w.list.Instances, equal) &&
		slices.EqualFunc(was.Unreadable, w.list.Unreadable, func(a, b *UnreadableError) bool { return a.Error() == b.Error() })
	if same {
		return
	}
	for _, u := range w.list.Unreadable {
		w.p.at.Log.Warn("instance left out", "path", u.Path, "error", u.Err)
	}
	w.p.publish(w.list, nil)
	if !w.told {
		w.told = true
		w.first <- nil
	}
}

func equal(a, b Instance) bool {
	return a.identity() == b.identity() && a.Address == b.Address && a.Port == b.Port && a.SSLPort == b.SSLPort &&
		a.Type == b.Type && a.Disabled == b.Disabled && slices.Equal(a.URI, b.URI) && string(a.Payload) == string(b.Payload)
}
