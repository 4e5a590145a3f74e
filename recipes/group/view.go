package group

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// reader reads a group over and over. It belongs to the goroutine that changes starts.
type reader struct {
	group *Group
	names bool // only who is there: no data, and no watch on each
	sub   *session.Subscription
	c     chan View
	told  bool
	last  []Member

	query   watch.Query  // the epoch of the last look, and whether to set watches again
	dir     *watch.Watch // on the group, or on its creation; nil if it has fired
	members map[string]*seen
	fired   chan fired
	forward sync.WaitGroup
	doubt   bool // a watch may never fire
}

// seen is a member's znode as last read, with the watch on it.
type seen struct {
	Member
	watch *watch.Watch // nil if it has fired
}

type fired struct {
	name  string
	watch *watch.Watch
	event zk.Event
}

func (g *Group) changes(ctx context.Context, names bool) <-chan View {
	r := &reader{
		group: g, names: names, sub: g.setup.Subscribe(),
		c: make(chan View, 1), members: map[string]*seen{}, fired: make(chan fired),
	}
	go func() {
		defer close(r.c)
		defer r.sub.Close()
		ctx, cancel := context.WithCancel(ctx)
		err := r.run(ctx)
		ended := ctx.Err() != nil
		cancel()
		r.forward.Wait()
		if !ended {
			latest.Send(r.c, View{Err: recipe.Fail("watch", g.setup.Path, err)})
		}
	}()
	return r.c
}

func (r *reader) run(ctx context.Context) error {
	all := true
	var doubt <-chan time.Time
	for {
		r.query.Epoch, r.doubt = r.sub.State().Epoch, r.doubt && !all
		if err := r.look(ctx, all); err != nil {
			return err
		}
		r.tell()
		switch {
		case !r.doubt:
			doubt = nil
		case doubt == nil:
			doubt = time.After(watch.Interval(r.query.Reset))
		}
		all, r.query.Reset = false, false
		for again := false; !again; {
			var changed bool
			select {
			case event := <-r.dir.C():
				event = r.dir.Take(event)
				r.dir, again, changed = nil, true, true
				if errors.Is(event.Err, zk.ErrClosing) {
					return zkerror.ErrConnClosed
				}
			case f := <-r.fired:
				changed = true
				if errors.Is(f.event.Err, zk.ErrClosing) {
					return zkerror.ErrConnClosed
				}
				again = r.note(f)
			case <-doubt:
				all, again, doubt, r.query.Reset = true, true, nil, true
			case <-r.sub.Changed():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if changed && r.group.joined.Load() {
				request.AwaitClosing(ctx, r.group.setup.Conn, request.ClosingTime)
				more, err := r.noteAll() // they do not wait in turn
				if err != nil {
					return err
				}
				again = again || more
			}
			state := r.sub.State()
			if state.Closed {
				return zkerror.ErrConnClosed
			}
			if state.Up && state.Epoch != r.query.Epoch {
				// Changes in between may be lost: the client library sets its watches
				// again once, and not if that fails (CURATOR-623).
				all, again, r.query.Reset = true, true, true
			}
		}
	}
}

// note notes that a member's watch has fired, and returns whether it is one that counts.
func (r *reader) note(f fired) bool {
	m := r.members[f.name]
	if m == nil || m.watch != f.watch {
		return false
	}
	m.watch = nil
	return true
}

// noteAll notes all that have fired by now.
func (r *reader) noteAll() (counts bool, err error) {
	for {
		select {
		case f := <-r.fired:
			if errors.Is(f.event.Err, zk.ErrClosing) {
				return counts, zkerror.ErrConnClosed
			}
			counts = r.note(f) || counts
		default:
			return counts, nil
		}
	}
}

// look reads what has changed, and sets the watches that are missing, in one request
// each; all reads everything.
func (r *reader) look(ctx context.Context, all bool) error {
	if all || r.dir == nil {
		return r.list(ctx, all)
	}
	var stale []string
	for name, m := range r.members {
		if m.watch == nil && !r.names {
			stale = append(stale, name)
		}
	}
	return r.read(ctx, stale)
}

// list reads who is there, and whoever is new; all reads everybody anew.
func (r *reader) list(ctx context.Context, all bool) error {
	conn, dir, watching := r.group.setup.Conn, r.group.setup.Path, r.sub != nil
	q := r.query
	q.Path, q.What = dir, watch.ChildrenOrCreation
	found, err := request.Read(ctx, conn, func() (watch.Found, error) {
		if all && watching {
			// The server of a new session may lag behind the one of the old.
			if _, err := conn.Sync(dir); err != nil {
				return watch.Found{}, err
			}
		}
		if watching {
			return watch.Try(conn, q)
		}
		names, _, err := request.Children(conn, dir)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return watch.Found{Children: names}, err
	})
	if err != nil {
		return err
	}
	r.dir, r.doubt = found.Watch, r.doubt || found.Doubt
	names := slices.DeleteFunc(slices.Clone(found.Children), func(name string) bool {
		return r.group.setup.Layout == recipes.Kazoo && !strings.HasSuffix(name, kazooSuffix)
	})
	there := map[string]*seen{}
	var stale []string
	for _, name := range names {
		m := r.members[name]
		if m == nil {
			m = &seen{Member: Member{ID: name}}
		}
		there[name] = m
		if !r.names && (all || m.watch == nil) {
			stale = append(stale, name)
		}
	}
	r.members = there
	return r.read(ctx, stale)
}

// abreast is how many members are read at a time.
const abreast = 16

// read reads members, and watches those that are not watched yet.
func (r *reader) read(ctx context.Context, names []string) error {
	conn, watching := r.group.setup.Conn, r.sub != nil
	for chunk := range slices.Chunk(names, abreast) {
		var answers []<-chan request.Answer[watch.Found]
		for _, name := range chunk {
			q := r.query
			q.Path = path.Join(r.group.setup.Path, name)
			answers = append(answers, request.Start(func() (watch.Found, error) {
				if watching {
					return watch.Read(ctx, conn, q)
				}
				return request.Read(ctx, conn, func() (f watch.Found, err error) {
					f.Data, f.Stat, err = request.Get(conn, q.Path)
					return f, err
				})
			}))
		}
		for i, name := range chunk {
			a := <-answers[i]
			switch {
			case errors.Is(a.Err, zk.ErrNoNode):
				delete(r.members, name) // the watch on the group fires if it comes back
			case a.Err != nil && !errors.Is(a.Err, zkerror.ErrTooLarge):
				return a.Err
			default:
				if a.Value.Watch != r.members[name].watch {
					r.follow(ctx, name, a.Value.Watch)
				}
				r.members[name] = &seen{r.member(name, a.Value.Data, a.Value.Stat, a.Err), a.Value.Watch}
				r.doubt = r.doubt || a.Value.Doubt
			}
		}
	}
	return nil
}

func (r *reader) member(name string, data []byte, stat *zk.Stat, err error) Member {
	m := Member{ID: name, Data: data, Token: stat.Czxid, Revision: stat.Mzxid, Session: stat.EphemeralOwner, Err: err}
	if r.group.setup.Layout == recipes.Kazoo && err == nil {
		m.ID, m.Data = string(data), nil
	}
	return m
}

// follow has the reader told when a watch fires.
func (r *reader) follow(ctx context.Context, name string, w *watch.Watch) {
	if w == nil {
		return
	}
	r.forward.Go(func() {
		select {
		case event := <-w.C():
			select {
			case r.fired <- fired{name, w, w.Take(event)}:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	})
}

// view is who is there, in order.
func (r *reader) view() []Member {
	all := make([]Member, 0, len(r.members))
	for _, m := range r.members {
		all = append(all, m.Member)
	}
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Token, b.Token))
	})
	return all
}

// tell delivers the view if it is not the one that was delivered last.
func (r *reader) tell() {
	now := r.view()
	same := slices.EqualFunc(now, r.last, func(a, b Member) bool {
		return a.ID == b.ID && a.Token == b.Token && a.Revision == b.Revision
	})
	if same && r.told {
		return
	}
	r.last, r.told = now, true
	latest.Send(r.c, View{Members: now})
}
