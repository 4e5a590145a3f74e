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

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// watcher belongs to a provider's goroutine.
type watcher struct {
	p     *Provider
	first chan<- error
	nodes map[string]*read
	query watch.Query  // the epoch of the last look, and whether to set watches again
	dir   *watch.Watch // on the service's node, or on its creation; nil if it has fired
	doubt bool         // a watch may never fire
	list  List
	told  bool

	events   chan fired
	watching sync.WaitGroup // the goroutines that wait for watches
}

// fired is an event of a watch.
type fired struct {
	name   string // "" for the service's node
	watch  *watch.Watch
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
	err := zkerror.Refine(w.watch())
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
	w.p.setup.Log.Warn("provider ended", "path", p.dir, "err", err)
	w.list.Err = err
	p.publish(w.list, err)
}

// watch keeps the list the newest until something ends that.
func (w *watcher) watch() error {
	p := w.p
	w.query.Epoch = p.sub.State().Epoch
	var doubt <-chan time.Time
	for all := false; ; { // whether everything is to be asked for again
		w.doubt = w.doubt && !all
		err := w.refresh(all)
		switch {
		case !w.doubt:
			doubt = nil
		case doubt == nil:
			doubt = time.After(watch.Interval(w.query.Reset))
		}
		all = false
		var again <-chan time.Time
		switch {
		case errors.Is(err, ErrTooMany) && w.told:
			w.tell(err)
			again = time.After(tooManyPause)
			w.query.Epoch = p.sub.State().Epoch // it was the listing that broke the connection
		case err != nil:
			return err
		default:
			w.tell(nil)
		}
		for wait := true; wait; {
			select {
			case event := <-w.events:
				if event.closed {
					return zkerror.ErrConnClosed
				}
				wait = !w.note(event)
			case <-p.sub.Changed():
				state := p.sub.State()
				if state.Closed {
					return zkerror.ErrConnClosed
				}
				wait = state.Epoch == w.query.Epoch
			case <-again:
				wait = false
			case <-doubt:
				wait, all, doubt = false, true, nil
			case <-p.ctx.Done():
				return context.Cause(p.ctx)
			}
		}
		// What comes at once is one change.
		for more := true; more; {
			select {
			case event := <-w.events:
				if event.closed {
					return zkerror.ErrConnClosed
				}
				w.note(event)
			default:
				more = false
			}
		}
		w.awaitClosing()
		now := p.sub.State().Epoch
		all = all || now != w.query.Epoch
		w.query.Epoch, w.query.Reset = now, all
	}
}

// awaitClosing waits for a moment if the reason of an event may be that the owner is
// closing the connection, which deletes what this session has registered.
func (w *watcher) awaitClosing() {
	session := w.p.setup.Conn.SessionID()
	for _, n := range w.nodes {
		if n.stat != nil && n.stat.EphemeralOwner == session && session != 0 && (n.watch == nil || w.dir == nil) {
			request.AwaitClosing(w.p.ctx, w.p.setup.Conn, request.ClosingTime)
			return
		}
	}
}

// note notes that a watch has fired, and returns whether it is one that counts.
func (w *watcher) note(event fired) bool {
	if event.name == "" {
		if event.watch != w.dir {
			return false
		}
		w.dir = nil
		return true
	}
	n := w.nodes[event.name]
	if n == nil || n.watch != event.watch {
		return false
	}
	n.watch = nil
	return true
}

// follow waits for a watch in a goroutine of its own.
func (w *watcher) follow(name string, on *watch.Watch) {
	if on == nil {
		return
	}
	w.watching.Go(func() {
		select {
		case event := <-on.C():
			select {
			case w.events <- fired{name, on, errors.Is(on.Take(event).Err, zk.ErrClosing)}:
			case <-w.p.ctx.Done():
			}
		case <-w.p.ctx.Done():
		}
	})
}

// refresh reads what has changed. With all it reads everything, because watches may have
// been lost with the connection.
func (w *watcher) refresh(all bool) error {
	ctx, conn := w.p.ctx, w.p.setup.Conn
	if all {
		// The server of the new connection may lag behind the former one.
		if _, err := request.Read(ctx, conn, func() (string, error) { return conn.Sync(w.p.dir) }); err != nil {
			return err
		}
	}
	if all || w.dir == nil {
		q := w.query
		q.Path, q.What = w.p.dir, watch.ChildrenOrCreation
		l, err := list(ctx, conn, func() (watch.Found, error) { return watch.Try(conn, q) })
		if err != nil {
			return err
		}
		if l.Watch != w.dir {
			w.follow("", l.Watch)
		}
		w.dir, w.doubt = l.Watch, w.doubt || l.Doubt
		nodes := map[string]*read{}
		for _, name := range l.Children {
			nodes[name] = w.nodes[name]
		}
		w.nodes = nodes
	}
	var due []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if n := w.nodes[name]; n == nil || n.watch == nil || all {
			due = append(due, name)
		}
	}
	found := make([]read, len(due))
	parallel(len(due), func(i int) {
		q := w.query
		q.Path = path.Join(w.p.dir, due[i])
		found[i] = readInstance(watch.Read(ctx, conn, q))
	})
	for i, name := range due {
		f := &found[i]
		switch {
		case errors.Is(f.err, zk.ErrNoNode):
			delete(w.nodes, name) // the watch of the service's node fires, too
			continue
		case f.err != nil && !f.told:
			return f.err
		}
		if was := w.nodes[name]; was == nil || was.watch != f.watch {
			w.follow(name, f.watch)
		}
		w.nodes[name], w.doubt = f, w.doubt || f.doubt
	}
	return nil
}

// tell publishes the list if it has changed.
func (w *watcher) tell(err error) {
	was := w.list
	w.list = List{Err: err}
	same := w.told && (was.Err == nil) == (err == nil) && (err == nil || was.Err.Error() == err.Error())
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
		w.p.setup.Log.Warn("instance skipped", "path", u.Path, "err", u.Err)
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
