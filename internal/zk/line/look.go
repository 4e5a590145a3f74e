package line

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// listing is what a look at the line's node returns.
type listing struct {
	children []string
	stat     *zk.Stat
	watched  watch.Found // with a watch on the children, if that was asked for
}

func (p *place) list() (listing, error) {
	found, err := watch.Listing(p.Conn, p.Dir)
	return listing{children: found.Children, stat: found.Stat}, err
}

// look lists the line, and, side by side with it, reads and watches the own
// znode where that is not watched yet. It repeats both until they succeed.
func (p *place) look(ctx context.Context) error { return p.lookBy(ctx, false) }

// lookBy is look, with or without a watch on the children of the line's node.
func (p *place) lookBy(ctx context.Context, watching bool) error {
	for {
		state := p.sub.State()
		var listed <-chan request.Answer[listing]
		switch {
		case watching:
			q := p.query(p.Dir, watch.Children)
			listed = request.Start(func() (listing, error) { return p.listAndWatch(q) })
		case p.ownWatch != nil:
			listed = ask(p, p.list)
		default:
			listed = request.Start(p.list)
		}
		if p.ownWatch == nil {
			if err := p.readOwn(ctx); err != nil {
				return err
			}
		}
		var l request.Answer[listing]
		select {
		case l = <-listed:
		case event := <-p.ownWatch.C():
			if err := p.ownEvent(ctx, p.ownWatch.Take(event)); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.Err == nil && p.isOther(l.Value.stat) {
			return p.noDir() // the node is another one by now
		}
		if l.Err == nil {
			p.epoch = state.Epoch
			if watching {
				p.crowdWatch = l.Value.watched.Watch
				p.noteDoubt(l.Value.watched)
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
		select {
		case o := <-p.readWatched(path, watch.Children):
			switch {
			case o.Err == nil && o.Value.Stat.EphemeralOwner == p.Conn.SessionID():
				p.session, p.czxid, p.ownWatch = o.Value.Stat.EphemeralOwner, o.Value.Stat.Czxid, o.Value.Watch
				p.noteDoubt(o.Value)
				p.watched(path)
				return nil
			case o.Err == nil:
				p.session = o.Value.Stat.EphemeralOwner
				return zkerror.ErrSessionExpired
			case isNoNode(o.Err) && p.session == 0:
				return zkerror.ErrSessionExpired // it changed during the create
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
	view := p.view()
	around := view.surroundingsOf(p.name, children)
	switch {
	case around.ended:
		return zkerror.ErrElectionOver
	case !around.present:
		// Reads of a session never go back, so it was there and is deleted;
		// unless this is another session.
		if p.Conn.SessionID() != p.session {
			return zkerror.ErrSessionExpired
		}
		return p.deleted(ctx)
	}
	if p.Room != nil {
		around.isSecond = false // is of no use here
		if p.crowd = p.Room.crowdOf(p.name, around.predecessor, children, view.prefixes); p.crowd.over {
			return ErrOverLimit
		}
	}
	if around.twin != "" && p.Room == nil {
		if err := p.checkTwin(ctx, around.twin); err != nil {
			return err
		}
		return p.take(ctx, children)
	}
	if p.plain != nil && len(p.prefixes) > 1 {
		found, err := p.searchPlain(ctx)
		if err != nil {
			return err
		}
		around.strays = slices.DeleteFunc(found, func(name string) bool { return name == p.name })
	}
	for _, stray := range around.strays {
		p.Log.Info("deleting an orphaned znode of the same candidate", "path", p.pathOf(stray))
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

// view returns how this contender reads a listing.
func (p *place) view() view {
	v := view{libraries: p.Room != nil, prefixes: p.prefixes, endMarker: p.EndMarker, blocks: p.Blocks, absent: p.absent}
	if len(p.prefixes) == 1 || p.plain != nil {
		v.prefixes = nil // either no second znode can exist, or all contenders have this prefix
	}
	return v
}

// checkTwin reads the Stat of a znode with this contender's sequence number. ZooKeeper does
// not give a number twice, so one of the two was not created as a sequential znode. If both
// are contenders, their order is unknown.
func (p *place) checkTwin(ctx context.Context, name string) error {
	stat, err := p.stat(ctx, name)
	switch {
	case err != nil:
		return err
	case stat != nil && p.contends(name, stat.EphemeralOwner):
		return fmt.Errorf("%w: %s and %s; delete the one that was not created as a sequential znode", zkerror.ErrAmbiguous, p.path(), p.pathOf(name))
	}
	p.skip(name)
	return nil
}

// contends reports whether a znode in the line, named as contenders are, is one.
func (p *place) contends(name string, owner int64) bool {
	return p.Room != nil || Contends(name, &zk.Stat{EphemeralOwner: owner})
}

// Contends reports whether a znode that Order takes for a contender's by its name is
// one.
func Contends(name string, stat *zk.Stat) bool { return Recognized(name) || session.IsEphemeral(stat) }

// Contenders returns those of names, which Order takes for those of contenders, that are
// contenders, in their order, and the others. A znode that has gone is in neither. It sends
// a request for each name that is not Recognized.
func Contenders(ctx context.Context, conn *zk.Conn, dir string, names []string) (contenders, others []string, err error) {
	type answer = request.Answer[*zk.Stat]
	const atOnce = 64
	for chunk := range slices.Chunk(names, atOnce) {
		answers := make([]<-chan answer, len(chunk))
		for i, name := range chunk {
			if !Recognized(name) {
				answers[i] = request.Start(func() (*zk.Stat, error) { return statOf(ctx, conn, path.Join(dir, name)) })
			}
		}
		for i, c := range answers {
			if c == nil {
				contenders = append(contenders, chunk[i])
				continue
			}
			switch a := <-c; {
			case a.Err != nil:
				err = a.Err
			case a.Value == nil:
			case Contends(chunk[i], a.Value):
				contenders = append(contenders, chunk[i])
			default:
				others = append(others, chunk[i])
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return contenders, others, nil
}

// skip ignores, from now on, a znode that is named like a contender and is not one.
func (p *place) skip(name string) {
	if p.absent == nil {
		p.absent = map[string]bool{}
	}
	_, name = p.partOf(name)
	p.absent[name] = true
}

// lineGone turns the absence of the line's node into what that means.
func (p *place) lineGone(err error) error {
	if isNoNode(err) {
		return p.noDir()
	}
	return err
}
