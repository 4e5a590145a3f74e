package line

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// listing is what a look at the line's node returns.
type listing struct {
	children []string
	stat     *zk.Stat
	watch    <-chan zk.Event // on the children, where that was asked for
}

func (p *place) list() (listing, error) {
	return lister{p.Conn, p.Dir}.shared()
}

// own is what reading the own znode, and watching it, returns.
type own struct {
	stat  *zk.Stat
	watch <-chan zk.Event
}

// look lists the line, and, side by side with it, reads and watches the own
// znode where that is not watched yet. It repeats both until they succeed.
func (p *place) look(ctx context.Context) error { return p.lookBy(ctx, false) }

// lookBy is look, with or without a watch on the children of the line's node.
func (p *place) lookBy(ctx context.Context, watching bool) error {
	for {
		state := p.sub.State()
		listed := p.crowding
		switch {
		case !watching && p.ownWatch != nil:
			listed = ask(p, p.list)
		case !watching:
			listed = request.Start(p.list)
		case listed == nil:
			listed = request.Start(p.listAndWatch)
			p.crowding = listed
		}
		if p.ownWatch == nil {
			if err := p.readOwn(ctx); err != nil {
				return err
			}
		}
		var l request.Answer[listing]
		select {
		case l = <-listed:
			if watching {
				p.crowding = nil
			}
		case event := <-p.ownWatch:
			if err := p.ownEvent(ctx, event); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.Err == nil && p.isOther(l.Value.stat) {
			return ErrEnded // the node is another one by now
		}
		if l.Err == nil {
			p.epoch = state.Epoch
			if watching {
				p.crowdWatch = l.Value.watch
			}
			return p.take(ctx, l.Value.children)
		}
		if err := p.again(ctx, p.lineGone(l.Err)); err != nil {
			return err
		}
	}
}

// readOwn reads the own znode: who owns it, since when, and a watch on its end.
func (p *place) readOwn(ctx context.Context) error {
	path := p.path()
	for {
		read := ask(p, func() (own, error) {
			_, stat, watch, err := p.Conn.ChildrenW(path)
			return own{stat, watch}, err
		})
		select {
		case o := <-read:
			switch {
			case o.Err == nil && o.Value.stat.EphemeralOwner == p.Conn.SessionID():
				p.session, p.czxid, p.ownWatch = o.Value.stat.EphemeralOwner, o.Value.stat.Czxid, o.Value.watch
				p.watched(path)
				return nil
			case o.Err == nil:
				p.session = o.Value.stat.EphemeralOwner
				return ErrSessionExpired
			case isNoNode(o.Err) && p.session == 0:
				return ErrSessionExpired // it changed during the create
			case isNoNode(o.Err):
				return p.deleted(ctx)
			}
			if err := p.again(ctx, o.Err); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take draws the conclusions from a listing.
func (p *place) take(ctx context.Context, children []string) error {
	prefixes := p.prefixes
	if len(prefixes) == 1 {
		prefixes = nil // that of the own znode: there can be no other
	}
	around := surroundingsOf(p.name, children, prefixes, p.EndMarker, p.Blocks)
	switch {
	case around.ended:
		return ErrEnded
	case !around.present:
		// Reads of a session never go back, so it was there and is deleted;
		// unless this is another session.
		if p.Conn.SessionID() != p.session {
			return ErrSessionExpired
		}
		return p.deleted(ctx)
	}
	if p.Room != nil {
		around.isSecond = false // is of no use here
		if p.crowd = p.Room.crowdOf(p.name, around.predecessor, children, prefixes); p.crowd.over {
			return ErrOverLimit
		}
	}
	for _, stray := range around.strays {
		p.Log.Info("deleting a second znode of the same candidacy", "path", p.pathOf(stray))
		if err := p.delete(ctx, stray); err != nil {
			return err
		}
	}
	if around.predecessor == p.around.predecessor {
		around.predecessor = p.around.predecessor
	} else {
		p.predecessorWatch = nil // it watched one that is gone
		p.predecessorPath, around.predecessor = p.partOf(around.predecessor)
	}
	if around.predecessor != "" {
		around.follower = "" // only the first asks, who lists anew
	}
	around.strays = nil
	p.around = around
	p.verified = around.isSecond && (p.Yields == nil || !p.Yields(around.predecessor))
	return nil
}

// lineGone turns the absence of the line's node into what that means.
func (p *place) lineGone(err error) error {
	if isNoNode(err) {
		return p.noDir()
	}
	return err
}
