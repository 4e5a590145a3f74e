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

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/setup"
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

	dir     <-chan zk.Event // on the group, or on its coming about
	members map[string]*seen
	fired   chan fired
	forward sync.WaitGroup
	// doubt: watches were taken over, and with nobody looking the client library may
	// have given one up.
	doubt bool
}

// seen is a member's znode as last read, with the watch on it.
type seen struct {
	Member
	watch <-chan zk.Event
}

type fired struct {
	name  string
	watch <-chan zk.Event
	event zk.Event
}

// watches are those that readers have left behind.
type watches struct {
	mu   sync.Mutex
	sets []watchSet
}

type watchSet struct {
	names   bool
	dir     <-chan zk.Event
	members map[string]*seen
}

func (w *watches) put(s watchSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sets = append(w.sets, s)
}

func (w *watches) take(names bool) (s watchSet, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.sets, func(s watchSet) bool { return s.names == names })
	if i < 0 {
		return watchSet{members: map[string]*seen{}}, false
	}
	s = w.sets[i]
	w.sets = slices.Delete(w.sets, i, i+1)
	return s, true
}

func (g *Group) changes(ctx context.Context, names bool) <-chan View {
	before, doubt := g.left.take(names)
	r := &reader{
		group: g, names: names, doubt: doubt, sub: session.Subscribe(g.at.Conn, g.at.Timeout),
		c: make(chan View, 1), dir: before.dir, members: before.members, fired: make(chan fired),
	}
	go func() {
		defer close(r.c)
		defer r.sub.Close()
		ctx, cancel := context.WithCancel(ctx)
		for name, m := range r.members {
			r.follow(ctx, name, m.watch)
		}
		err := r.run(ctx)
		ended := ctx.Err() != nil
		cancel()
		r.forward.Wait()
		if !ended {
			r.publish(View{Err: setup.Fail("watch", g.at.Path, err)})
			return
		}
		g.left.put(watchSet{names, r.dir, r.members})
	}()
	return r.c
}

func (r *reader) run(ctx context.Context) error {
	all := true
	for {
		epoch := r.sub.State().Epoch
		if err := r.look(ctx, all); err != nil {
			return err
		}
		r.tell()
		all = false
		var doubt <-chan time.Time
		if r.doubt {
			doubt = time.After(r.group.at.Timeout)
		}
		for again := false; !again; {
			var changed bool
			select {
			case event := <-r.dir:
				r.dir, again, changed = nil, true, true
				if errors.Is(event.Err, zk.ErrClosing) {
					return request.ErrClosed
				}
			case f := <-r.fired:
				changed = true
				if errors.Is(f.event.Err, zk.ErrClosing) {
					return request.ErrClosed
				}
				again = r.note(f)
			case <-doubt:
				all, again = true, true
			case <-r.sub.Changed():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if changed && r.group.joined.Load() {
				request.AwaitClosing(ctx, r.group.at.Conn, request.ClosingTime)
				more, err := r.noteAll() // they do not wait in turn
				if err != nil {
					return err
				}
				again = again || more
			}
			state := r.sub.State()
			if state.Closed {
				return sentinel.ErrConnClosed
			}
			if state.Up && state.Epoch != epoch {
				// What has changed meanwhile may not be told: watches are set anew once,
				// and not if that fails (CURATOR-623).
				r.forget()
				all, again = true, true
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
				return counts, request.ErrClosed
			}
			counts = r.note(f) || counts
		default:
			return counts, nil
		}
	}
}

// forget drops all watches, which may never fire.
func (r *reader) forget() {
	r.dir, r.doubt = nil, false
	for _, m := range r.members {
		m.watch = nil
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
	type answer struct {
		names []string
		watch <-chan zk.Event
	}
	conn, dir, watch := r.group.at.Conn, r.group.at.Path, r.dir
	watching := r.sub != nil
	a, err := request.Read(ctx, conn, func() (answer, error) {
		if all && watching {
			// The server of a new session may lag behind the one of the old.
			if _, err := conn.Sync(dir); err != nil {
				return answer{}, err
			}
		}
		if !watching || watch != nil {
			names, _, err := conn.Children(dir)
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			return answer{names, watch}, err
		}
		for {
			names, _, watch, err := conn.ChildrenW(dir)
			if !errors.Is(err, zk.ErrNoNode) {
				return answer{names, watch}, err
			}
			exists, _, watch, err := conn.ExistsW(dir)
			if !exists || err != nil {
				return answer{nil, watch}, err
			}
			// It has come about meanwhile. What was set is a watch on its data, which
			// fires at the latest when it goes.
		}
	})
	if err != nil {
		return err
	}
	r.dir = a.watch
	names := slices.DeleteFunc(a.names, func(name string) bool {
		return r.group.at.Layout == recipes.Kazoo && !strings.HasSuffix(name, kazooSuffix)
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
	type answer struct {
		data  []byte
		stat  *zk.Stat
		watch <-chan zk.Event
	}
	conn, watching := r.group.at.Conn, r.sub != nil
	for chunk := range slices.Chunk(names, abreast) {
		var answers []<-chan request.Answer[answer]
		for _, name := range chunk {
			node, watch := path.Join(r.group.at.Path, name), r.members[name].watch
			answers = append(answers, request.Start(func() (answer, error) {
				return request.Read(ctx, conn, func() (a answer, err error) {
					if !watching || watch != nil {
						a.watch = watch
						a.data, a.stat, err = conn.Get(node)
					} else {
						a.data, a.stat, a.watch, err = conn.GetW(node)
					}
					return a, err
				})
			}))
		}
		for i, name := range chunk {
			a := <-answers[i]
			switch {
			case errors.Is(a.Err, zk.ErrNoNode):
				delete(r.members, name) // the watch on the group tells of those who come
			case a.Err != nil:
				return a.Err
			default:
				if a.Value.watch != r.members[name].watch {
					r.follow(ctx, name, a.Value.watch)
				}
				r.members[name] = &seen{r.member(name, a.Value.data, a.Value.stat), a.Value.watch}
			}
		}
	}
	return nil
}

func (r *reader) member(name string, data []byte, stat *zk.Stat) Member {
	m := Member{ID: name, Data: data, Token: stat.Czxid, Revision: stat.Mzxid, Session: stat.EphemeralOwner}
	if r.group.at.Layout == recipes.Kazoo {
		m.ID, m.Data = string(data), nil
	}
	return m
}

// follow has the reader told when a watch fires.
func (r *reader) follow(ctx context.Context, name string, watch <-chan zk.Event) {
	if watch == nil {
		return
	}
	r.forward.Go(func() {
		select {
		case event := <-watch:
			select {
			case r.fired <- fired{name, watch, event}:
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
	r.publish(View{Members: now})
}

// publish puts the newest view in place of one that was not read.
func (r *reader) publish(v View) {
	select {
	case <-r.c:
	default:
	}
	r.c <- v // this goroutine is the only one that sends
}
