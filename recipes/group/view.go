package group

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// View is the set of members of a group at one time.
type View struct {
	// Members are the members, sorted by ID, then by Token.
	Members []Member
	// Err is the reason why the channel was closed: [recipes.ErrConnClosed] or
	// [recipes.ErrPermission]. It is set only in the last element.
	Err error
}

// Since returns the differences from an earlier view: members that have joined, that have
// left, and whose data has changed. A member that has left and rejoined is in both joined
// and gone.
func (v View) Since(old View) (joined, gone, changed []Member) {
	for _, m := range v.Members {
		was := slices.IndexFunc(old.Members, func(o Member) bool { return o.Token == m.Token && o.ID == m.ID })
		switch {
		case was < 0:
			joined = append(joined, m)
		case old.Members[was].Revision != m.Revision:
			changed = append(changed, m)
		}
	}
	for _, o := range old.Members {
		if !slices.ContainsFunc(v.Members, func(m Member) bool { return o.Token == m.Token && o.ID == m.ID }) {
			gone = append(gone, o)
		}
	}
	return joined, gone, changed
}

// Members returns the members of the group, sorted by ID, according to ZooKeeper. It sets
// no watch.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	members, err := recipe.ListChildren(ctx, g.setup.Conn, g.children())
	if err != nil {
		return nil, g.setup.Fail("read members of", g.setup.Path, err)
	}
	return sortedMembers(members), nil
}

// Watch returns a channel that delivers the current members, and again after each change of the
// members or their data. The channel is closed, without an Err, after the context is done. A slow
// reader receives only the newest view. No views are delivered while ZooKeeper does not answer;
// afterwards everything is read again.
//
// Watch sets a watch on the group, and one on each member unless the group is [WithoutData]. All calls over
// one connection share them. The client library cannot remove watches: after the context is done each
// remains until the next change of its znode.
func (g *Group) Watch(ctx context.Context) <-chan View {
	views := make(chan View, 1)
	reader := recipe.NewChildReader(g.setup, g.children(), true)
	go func() {
		defer close(views)
		defer reader.Close()
		g.setup.Report("group", event.Event{Kind: event.Opened})
		err := g.publishViews(ctx, reader, views)
		if err = g.setup.Fail("watch", g.setup.Path, err); ctx.Err() != nil {
			err = nil
		} else {
			limit.SendNewest(views, View{Err: err})
		}
		g.setup.Report("group", event.Event{Kind: event.Ended, Err: err})
	}()
	return views
}

// publishViews sends a view whenever the members change, until ctx is done or the members cannot be read.
func (g *Group) publishViews(ctx context.Context, reader *recipe.ChildReader[Member], views chan View) error {
	var last map[string]Member
	for first := true; ; first = false {
		members, err := reader.Read(ctx)
		if err != nil {
			return err
		}
		if first || !maps.EqualFunc(members, last, func(a, b Member) bool {
			return a.ID == b.ID && a.Token == b.Token && a.Revision == b.Revision
		}) {
			last = members
			// Send a new slice, because the receiver may change the slice of a view.
			limit.SendNewest(views, View{Members: sortedMembers(members)})
			g.setup.Report("group", event.Event{Kind: event.Listed, Count: len(members)})
		}
		if err := reader.Wait(ctx, nil); err != nil {
			return err
		}
	}
}

// children returns a description of how to read the znodes of the members.
func (g *Group) children() recipe.ChildConfig[Member] {
	c := recipe.ChildConfig[Member]{Path: g.setup.Path, NamesOnly: g.namesOnly, Parse: func(name string, found watch.Found, err error) (Member, error) {
		m := Member{ID: name, Data: found.Data, Err: connection.Refine(nil, err)}
		if found.Stat != nil {
			m.Token, m.Revision, m.Session = found.Stat.Czxid, found.Stat.Mzxid, found.Stat.EphemeralOwner
		}
		if g.setup.Layout == recipe.Kazoo && err == nil {
			m.ID, m.Data = string(found.Data), nil
		}
		if connection.IsUnreadable(err) {
			return m, nil
		}
		return m, err
	}}
	if g.setup.Layout == recipe.Kazoo {
		c.Skip = func(name string) bool { return !strings.HasSuffix(name, kazooSuffix) }
	}
	return c
}

// sortedMembers returns the members, sorted by ID, then by Token.
func sortedMembers(members map[string]Member) []Member {
	all := make([]Member, 0, len(members))
	for _, m := range members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Token, b.Token))
	})
	return all
}
